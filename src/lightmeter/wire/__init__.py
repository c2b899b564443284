"""The HTTP contract between the toolkit and the analysis service: requests, answers, names and limits. No I/O."""
