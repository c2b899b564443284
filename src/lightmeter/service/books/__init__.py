"""What must not be forgotten: requests and their states, keys, credits, in SQLite or PostgreSQL."""
