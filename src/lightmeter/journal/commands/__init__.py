"""Functions that change a journal. `Journal.write` passes `db`: `await journal.write(put_meta(values))`."""
