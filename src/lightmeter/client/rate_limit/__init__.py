"""Adaptive rate limiter: finds an undocumented limit of a service and stays just below it. Pure."""

from lightmeter.client.rate_limit.headers import Quota, parse_quota
from lightmeter.client.rate_limit.limiter import AdaptiveLimiter
from lightmeter.client.rate_limit.mode_transitions import LimiterMode
from lightmeter.client.rate_limit.pacer import SendRecord

__all__ = ["AdaptiveLimiter", "LimiterMode", "Quota", "SendRecord", "parse_quota"]
