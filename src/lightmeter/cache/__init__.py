"""Answers that are kept across runs, and their reuse."""
