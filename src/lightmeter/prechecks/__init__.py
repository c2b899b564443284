"""What is wrong with a row before money is spent on it."""

from lightmeter.prechecks.check import Checked, Checker
from lightmeter.prechecks.finding import CHECKS, Finding, Severity

__all__ = ["CHECKS", "Checked", "Checker", "Finding", "Severity"]
