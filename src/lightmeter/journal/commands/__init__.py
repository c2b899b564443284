"""Functions that change a journal. Each is a `sqlite.command`: `journal.write(put_meta(values))` runs `put_meta`."""
