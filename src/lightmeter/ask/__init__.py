"""A question of the user's own: a prompt, a JSON schema for its answers, and how answers are read."""
