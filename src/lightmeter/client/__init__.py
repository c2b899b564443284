"""HTTP client for any service that follows the wire contract, and the rate limiter that the client needs."""
