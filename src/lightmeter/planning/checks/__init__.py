"""Pre-checks of the rows of a manifest while they are planned, and their stored results."""
