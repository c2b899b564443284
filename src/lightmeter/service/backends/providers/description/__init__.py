"""Adapters to language models that describe pictures."""
