"""Runs stored requests: job queues, the class `Runner`, and a lock for running a dangerous request alone."""
