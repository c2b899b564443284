"""Whether an output folder can be written to: asked before anything is planned or paid for."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile

from lightmeter.errors import SettingsError

__all__ = ["prepare_folder"]


def prepare_folder(out: Path) -> None:
    """Make the output folder where it is missing, and see that files can be written there.

    Raises:
        SettingsError: it is a file, or nothing can be written there.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out):
            pass
    except (FileExistsError, NotADirectoryError) as error:
        raise SettingsError(f"{out} is a file, or lies below one.", hint="Choose a folder.") from error
    except OSError as error:
        raise SettingsError(
            f"{out} cannot be written to: {error.strerror or error}.",
            hint="Choose another folder, or change its permissions.",
        ) from error
