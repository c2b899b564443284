"""Job queues of acknowledged requests, the runner that processes them, and the lock that isolates suspects."""
