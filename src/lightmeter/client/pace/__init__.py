"""Permission to send: finds a limit that nobody documented, and stays just under it. Pure: time is handed in."""

from lightmeter.client.pace.controller import Pace
from lightmeter.client.pace.headers import Quota, quota_of
from lightmeter.client.pace.spacing import Ticket

__all__ = ["Pace", "Quota", "Ticket", "quota_of"]
