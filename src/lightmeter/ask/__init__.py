"""Questions that a user asks about every image or video: their prompts, JSON schemas and the parser of the answers."""
