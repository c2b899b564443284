"""Checks of manifest rows before any credits are spent on them."""

from lightmeter.prechecks.check import Checker, CheckResult
from lightmeter.prechecks.finding import CHECKS, Finding, Severity

__all__ = ["CHECKS", "CheckResult", "Checker", "Finding", "Severity"]
