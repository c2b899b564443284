"""Talks to any service of the wire contract."""
