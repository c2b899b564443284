"""Runs stored requests: job queues, the class `Runner`, and the lock for a request that may crash its process."""
