"""Commands that change a journal: each returns a function of the connection, for `Journal.write`."""
