"""Functions that change a journal. Most get `db` from the journal: `await journal.write(put_meta(values))`."""
