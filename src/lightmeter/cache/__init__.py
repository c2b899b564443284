"""A cache of answers that later runs reuse instead of paying again."""
