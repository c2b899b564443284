"""Queries that read a journal."""
