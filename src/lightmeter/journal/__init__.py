"""The run's memory: one SQLite file that survives kill -9."""

from lightmeter.journal.state import Event, State
from lightmeter.journal.store import Journal, copy_journal, journal_path, reading

__all__ = ["Event", "Journal", "State", "copy_journal", "journal_path", "reading"]
