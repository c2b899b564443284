"""Functions that change a journal; `Journal.write` passes their `db`: `await journal.write(put_meta(values))`."""
