"""Writes `tables/README.md`, which says what the tables of an output folder hold and how to use them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from lightmeter import atomic
from lightmeter.tables.dictionary import dictionary

_TEXT: Final = """# The tables of this run

Each folder is a table of Parquet files. Begin with `items`: it has one row for each row of the manifest.

- Join the tables on `item_id`. A video may have many rows in a table: of its frames, numbered by `frame`, and of the
  whole video, where `frame` is null.
- {files}
- `lightmeter sql DIR "SELECT …"` and, in Python, `lightmeter.open(DIR).sql("SELECT …")` query the tables by name;
  `lightmeter.open(DIR).items` is a pandas DataFrame. Other programs read `tables/items/*.parquet`.

Photographs with a cat:

```sql
SELECT item_id, url, top_score FROM items WHERE list_contains(tags, 'cat')
```

Cost by a column of the manifest, or by folder:

```sql
SELECT regexp_extract(url, '(.*)/', 1) AS folder, count(*) AS items, sum(credits) AS credits FROM items GROUP BY 1
```

Worst pictures first:

```sql
SELECT item_id, url, nsfw, top_tag FROM items WHERE nsfw IS NOT NULL ORDER BY nsfw DESC LIMIT 20
```

## Columns

"""

_FILES: Final = "A relative `url` is a file in `{0}`. `file` is its absolute path."
_URLS: Final = "`url` is as in the manifest. `file` is the absolute path of a local file."


def write_folder_guide(out: Path, manifest: str | None) -> None:
    """Write `tables/README.md` in the output folder `out`, unless it has this text already.

    `manifest` is the path or URI of the manifest or of the folder with the files; None if it has neither.

    Raises:
        OSError: The file cannot be written.
    """
    path = None if manifest is None else Path(manifest)
    files = _URLS if path is None or not path.is_absolute() else _FILES.format(path if path.is_dir() else path.parent)
    guide, text = out / "tables" / "README.md", _TEXT.format(files=files) + dictionary()
    if not guide.exists() or guide.read_text(encoding="utf-8") != text:
        atomic.write_text(guide, text)
