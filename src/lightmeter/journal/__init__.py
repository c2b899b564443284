"""The journal of a run: every row, request and charge in one SQLite file that survives kill -9."""

from lightmeter.journal.files import copy_journal, journal_path
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.journal.submission_states import Event, State

__all__ = ["Event", "Journal", "State", "copy_journal", "journal_path", "open_read_only"]
