"""Client of any service that follows the wire contract, with its rate limiter."""

from lightmeter.client.classify import Classification, ResponseVerdict, classify_poll, classify_submission
from lightmeter.client.client import Client
from lightmeter.client.http_answer import RawAnswer
from lightmeter.client.polling import PollSchedule
from lightmeter.client.rate_limit import AdaptiveLimiter
from lightmeter.client.request_body import RequestBodyBuilder
from lightmeter.client.transport import Timeouts, Transport

__all__ = [
    "AdaptiveLimiter",
    "Classification",
    "Client",
    "PollSchedule",
    "RawAnswer",
    "RequestBodyBuilder",
    "ResponseVerdict",
    "Timeouts",
    "Transport",
    "classify_poll",
    "classify_submission",
]
