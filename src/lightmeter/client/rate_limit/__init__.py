"""Adaptive rate limiter: finds a service's undocumented limit on requests and stays just below it. No I/O, no clock."""

from lightmeter.client.rate_limit.headers import Quota, parse_quota
from lightmeter.client.rate_limit.limiter import AdaptiveLimiter
from lightmeter.client.rate_limit.local_limiter import LocalLimiter
from lightmeter.client.rate_limit.mode_transitions import LimiterMode
from lightmeter.client.rate_limit.pacer import SendRecord

__all__ = ["AdaptiveLimiter", "LimiterMode", "LocalLimiter", "Quota", "SendRecord", "parse_quota"]
