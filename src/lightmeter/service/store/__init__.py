"""The service's database: accounts, keys, credits, requests and results, in SQLite or PostgreSQL."""
