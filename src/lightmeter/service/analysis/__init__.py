"""From the assets of a request to its answer: inference queues, result cache, merging of results."""
