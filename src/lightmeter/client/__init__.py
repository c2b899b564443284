"""Talks to any service of the wire contract."""

from lightmeter.client.classify import Judgement, Verdict, judge_poll, judge_submission
from lightmeter.client.client import Client
from lightmeter.client.http_answer import RawAnswer
from lightmeter.client.polling import PollSchedule
from lightmeter.client.rate_limit import Pace
from lightmeter.client.request_body import Bodies
from lightmeter.client.transport import Timeouts, Transport

__all__ = [
    "Bodies",
    "Client",
    "Judgement",
    "Pace",
    "PollSchedule",
    "RawAnswer",
    "Timeouts",
    "Transport",
    "Verdict",
    "judge_poll",
    "judge_submission",
]
