"""Plans: what a run would send and what it would cost, before anything is spent."""
