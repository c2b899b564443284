"""Adapters that call the APIs of providers: language models that describe pictures, and vision APIs."""
