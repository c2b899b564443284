"""Adapters for the vision APIs of providers."""
