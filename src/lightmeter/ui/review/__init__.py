"""Decisions about items, and the agreement of back ends."""
