"""The service's database of accounts, keys, credits, requests and results, in SQLite or PostgreSQL."""
