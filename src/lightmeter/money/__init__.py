"""These modules account for credits: budget of an API key, proofs from balances, a run's statement, cost by feature."""
