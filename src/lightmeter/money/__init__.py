"""Where the credits of a run went: budget of a key, proofs from account balances, statement, cost by feature."""
