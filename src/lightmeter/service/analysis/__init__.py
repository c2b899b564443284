"""Analysis of assets: admission limits, inference queues, result cache, and merging of entries."""
