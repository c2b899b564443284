"""Stores the saved views of the gallery (filters and order under a name) in one small file in the run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from lightmeter import atomic
from lightmeter.errors import UsageError
from lightmeter.ui.gallery.gallery_queries import Filters, Sort

FILE_NAME: Final = "explorer-views.json"
MAX_VIEWS: Final = 100


class SavedView(BaseModel):
    """Filters and order that the user has saved under a name, to open the gallery with them again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    filters: Filters = Field(default_factory=Filters)
    sort: Sort = Field(default_factory=Sort)


_VIEWS: Final = TypeAdapter(dict[str, SavedView])


def read_views(folder: Path) -> dict[str, SavedView]:
    """Return name → saved view, for the run in `folder`; an empty dict if no view was saved.

    Raises:
        UsageError: The file cannot be read.
    """
    path = folder / FILE_NAME
    try:
        return _VIEWS.validate_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError) as error:
        raise UsageError(f"The saved views in {path} cannot be read.", hint="Repair or remove the file.") from error


def save_view(folder: Path, name: str, view: SavedView) -> dict[str, SavedView]:
    """Save `view` under the name `name`, and return name → view of all saved views.

    Replace a view that has this name already.

    Args:
        folder: Folder of the run.
        name: Name of the view.
        view: The view to save.

    Raises:
        UsageError: The name is empty, there are `MAX_VIEWS` views already, the file of saved views cannot be read, or
            the folder cannot be written.
    """
    if not name.strip():
        raise UsageError("A view needs a name.")
    views = {**read_views(folder), name.strip(): view}
    if len(views) > MAX_VIEWS:
        raise UsageError(f"There are {MAX_VIEWS} saved views already.", hint="Delete one first.")
    return _write(folder, views)


def delete_view(folder: Path, name: str) -> dict[str, SavedView]:
    """Delete the saved view `name` if it exists, and return name → view of the remaining ones.

    Raises:
        UsageError: The file of saved views cannot be read, or the folder cannot be written.
    """
    return _write(folder, {other: view for other, view in read_views(folder).items() if other != name})


def _write(folder: Path, views: dict[str, SavedView]) -> dict[str, SavedView]:
    try:
        atomic.write_bytes(folder / FILE_NAME, _VIEWS.dump_json(views, indent=1) + b"\n")
    except OSError as error:
        raise UsageError(f"The views cannot be saved in {folder}: {error.strerror or error}.") from error
    return views
