"""The analysis service: HTTP API, credits, jobs, and back ends with local and remote models."""
