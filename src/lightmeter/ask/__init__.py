"""Questions that a user asks about every row: a prompt, a JSON schema for the answers, and the parser of answers."""
