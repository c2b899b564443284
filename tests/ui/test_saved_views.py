"""Saved views of the gallery."""

from __future__ import annotations

import os

import pytest

from lightmeter.errors import UsageError
from lightmeter.ui.gallery.gallery_queries import Filters, Sort
from lightmeter.ui.gallery.saved_views import FILE_NAME, SavedView, delete_view, read_views, save_view

VIEW = SavedView(filters=Filters(tags=("cat",), color={"color": "teal"}), sort=Sort(by="severity", descending=True))


def test_a_saved_view_is_read_back(tmp_path):
    """A view is saved under its name, replaces one of this name, and can be deleted."""
    assert read_views(tmp_path) == {}
    save_view(tmp_path, " mine ", SavedView())
    save_view(tmp_path, "mine", VIEW)
    assert read_views(tmp_path) == {"mine": VIEW}
    assert delete_view(tmp_path, "mine") == read_views(tmp_path) == {}


def test_a_view_needs_a_name(tmp_path):
    """An empty name is an error, and nothing is saved."""
    with pytest.raises(UsageError, match="name"):
        save_view(tmp_path, " ", VIEW)
    assert not (tmp_path / FILE_NAME).exists()


@pytest.mark.parametrize("content", ["", "[]", '{"a": {"filters": {"nothing": 1}}}', "\0"])
def test_a_broken_file_is_named(tmp_path, content):
    """A file that holds no views is named in the error, and is not overwritten."""
    (tmp_path / FILE_NAME).write_text(content)
    for action in (lambda: read_views(tmp_path), lambda: save_view(tmp_path, "x", VIEW)):
        with pytest.raises(UsageError, match=FILE_NAME):
            action()
    assert (tmp_path / FILE_NAME).read_text() == content


def test_a_folder_that_is_not_writable_is_an_error(tmp_path, monkeypatch):
    """A view that cannot be written is an error with the system's reason."""
    if os.geteuid() == 0:  # root may write into any folder
        tmp_path = tmp_path / "file"
        tmp_path.write_text("")
        with pytest.raises(UsageError, match="cannot be"):
            save_view(tmp_path, "x", VIEW)
        return
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="cannot be saved"):
        save_view(tmp_path, "x", VIEW)
