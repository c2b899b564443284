"""Benchmarks of the Prefect flows."""
