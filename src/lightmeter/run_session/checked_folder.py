"""The output folder of `lightmeter check`: a journal whose rows are only checked, and that is no run."""

from __future__ import annotations

from pathlib import Path

from lightmeter.errors import SettingsError
from lightmeter.journal.files import FILE_NAME, copy_journal, journal_path, replace_journal, run_lock
from lightmeter.journal.thumbnails import THUMBNAILS_NAME, add_thumbnails
from lightmeter.run_session.session import find_run, prepare_folder
from lightmeter.settings import read_settings


def prepare_check_folder(out: Path) -> None:
    """Create the output folder of `lightmeter check` if it is missing; raise an error if the folder holds a run.

    Raises:
        SettingsError: the folder holds a run, or cannot be written to.
    """
    prepare_folder(out)
    if find_run(out) is not None:
        raise SettingsError(
            f"{out} holds a run, which a check would replace.", hint="Choose another folder with --out."
        )


def write_checked_journal(checked: Path, out: Path) -> None:
    """Copy the journal of `lightmeter check` from the folder `checked` to the output folder `out`.

    If `out` has the journal of an earlier check, replace that journal.

    Raises:
        SettingsError: the folder holds a run, or cannot be written to.
        JournalLocked: another process uses the folder.
    """
    with run_lock(out):
        prepare_check_folder(out)
        target = out / f".checked-{FILE_NAME}"
        try:
            copy_journal(journal_path(checked), target)
            add_thumbnails(checked / THUMBNAILS_NAME, out / THUMBNAILS_NAME, read_settings().thumbnail_bytes)
            replace_journal(target, journal_path(out))
        finally:
            target.unlink(missing_ok=True)
