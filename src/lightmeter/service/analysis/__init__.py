"""Analysis of assets: limits, inference queues, the result cache, and the merging of entries."""
