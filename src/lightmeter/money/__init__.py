"""These modules account for credits.

Among other things, they keep the budget of an API key, prove from account balances whether requests without an answer
were charged, compute a run's statement, and split a run's cost by back end and feature.
"""
