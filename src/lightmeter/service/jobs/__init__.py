"""Runs requests: the queues of acknowledged requests, the runner, and the lock that isolates suspect requests."""
