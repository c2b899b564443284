"""Runs stored requests.

The class `Runner` analyzes the images and videos of a request, and stores the result. The job queues (`local_queue`,
`postgres_queue`) decide when it runs the requests whose clients poll. `readers_writer_lock` has the lock with which a
request that may crash its process runs alone in this process.
"""
