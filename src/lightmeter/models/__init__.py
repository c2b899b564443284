"""The wire contract, shared by the toolkit and the service: requests, answers, names and limits. No I/O."""

from lightmeter.models.request import AnalyzeRequest
from lightmeter.models.response import Answer, Asset, Credits, Results

__all__ = ["AnalyzeRequest", "Answer", "Asset", "Credits", "Results"]
