"""Where the credits of a run went: budget of an API key, proofs from account balances, statement, cost by feature."""
