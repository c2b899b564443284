"""Client of any service that follows the wire contract, with its rate limiter."""
