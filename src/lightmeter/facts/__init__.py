"""Decoding of raw service answers into typed rows of the fact tables, such as `tags` and `colors`, without Arrow."""
