"""Runs stored requests: the class `Runner`, and the job queues that start it.

With a lock, a request that may crash its process runs while this process runs no other request.
"""
