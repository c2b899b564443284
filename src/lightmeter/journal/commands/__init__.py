"""Functions that change a journal.

Call them as `await journal.write(put_meta(values))`: `write` adds the argument `db`.
"""
