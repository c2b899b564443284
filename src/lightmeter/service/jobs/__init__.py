"""Runs stored requests: job queues, the class `Runner`, and the lock for a request that must run alone."""
