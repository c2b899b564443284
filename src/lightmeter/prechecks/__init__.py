"""Checks of manifest rows before any credits are spent on them."""
