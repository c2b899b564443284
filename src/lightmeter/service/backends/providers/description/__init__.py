"""Adapters for language models that describe pictures."""
