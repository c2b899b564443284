"""Where the credits of a run went: key budget, balance verdicts, statement, cost breakdown."""
