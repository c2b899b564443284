"""Talks to any service of the wire contract."""

from lightmeter.client.bodies import Bodies
from lightmeter.client.client import Client
from lightmeter.client.pace import Pace
from lightmeter.client.polling import PollSchedule
from lightmeter.client.raw import RawAnswer
from lightmeter.client.retry import Judgement, Verdict, judge_poll, judge_submission
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
