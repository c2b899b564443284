"""Create the output folder and check that it is writable, before a run is planned or paid for."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile

from lightmeter.errors import SettingsError


def prepare_folder(out: Path) -> None:
    """Create the output folder if it is missing, and check that files can be written there.

    Raises:
        SettingsError: `out` is a file, or the folder is not writable.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out):
            pass
    except (FileExistsError, NotADirectoryError) as error:
        raise SettingsError(f"{out} is a file, or lies below one.", hint="Choose a folder for --out.") from error
    except OSError as error:
        raise SettingsError(
            f"{out} cannot be written to: {error.strerror or error}.",
            hint="Choose another folder, or change its permissions.",
        ) from error
