"""Local models other than tags: faces, NSFW, texts, logos, colors and composed descriptions."""
