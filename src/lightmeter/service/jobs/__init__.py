"""Runs requests: job queues, the class that runs one request, and the lock that lets a request run alone."""
