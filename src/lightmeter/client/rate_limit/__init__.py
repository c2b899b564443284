"""Permission to send: finds a limit that nobody documented, and stays just under it. Pure: time is handed in."""

from lightmeter.client.rate_limit.headers import Quota, quota_of
from lightmeter.client.rate_limit.limiter import AdaptiveLimiter
from lightmeter.client.rate_limit.pacer import SendRecord

__all__ = ["AdaptiveLimiter", "Quota", "SendRecord", "quota_of"]
