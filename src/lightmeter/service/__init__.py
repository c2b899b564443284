"""The analysis API, whole: routes, credits, jobs, and back ends on local models."""
