"""What is wrong with a row before money is spent on it."""

from lightmeter.prechecks.check import Checker, CheckResult
from lightmeter.prechecks.finding import CHECKS, Finding, Severity

__all__ = ["CHECKS", "CheckResult", "Checker", "Finding", "Severity"]
