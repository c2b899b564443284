"""Permission to send: finds a limit that nobody documented, and stays just under it. Pure: time is handed in."""

from lightmeter.client.rate_limit.headers import Quota, quota_of
from lightmeter.client.rate_limit.limiter import Pace
from lightmeter.client.rate_limit.pacer import Ticket

__all__ = ["Pace", "Quota", "Ticket", "quota_of"]
