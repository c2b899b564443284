"""The wire contract, shared by the toolkit and the service: requests, answers, names and limits. No I/O."""
