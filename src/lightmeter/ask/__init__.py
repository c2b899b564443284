"""Questions that a user asks about every image or video: prompt, JSON schema of the answers, parser of answers."""
