"""Adapters to picture analysis providers."""
