"""What the service must not forget: requests and their states, keys and credits, in SQLite or PostgreSQL."""
