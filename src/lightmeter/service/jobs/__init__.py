"""Requests in work: the queues that hand them out, the runner, back-pressure and quarantine."""
