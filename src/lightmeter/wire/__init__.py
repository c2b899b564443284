"""Wire contract of toolkit and service: requests, answers, names and limits. No I/O."""
