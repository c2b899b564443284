"""Quotes in CSV and TSV: fields with line breaks are kept whole, and a quote that is not closed swallows no row."""

from __future__ import annotations

import csv
import gzip
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.errors import ManifestError
from lightmeter.manifest.csv_records import MAX_RECORD_CHARS, opening_line
from lightmeter.manifest.readers import ManifestReader
from lightmeter.manifest.row_parser import ReadOptions

LENIENT = ReadOptions(lenient=True)


def url(number: int) -> str:
    return f"https://example.com/{number}.jpg"


def table(mark: str = ",", end: str = "\n", rows: int = 300, spoiled: int = 11) -> str:
    """Return a table in which the row `spoiled`, from 1, has an unclosed quote."""
    lines = [mark.join(["url", "id", "caption"])]
    for number in range(1, rows + 1):
        caption = '"a cat' if number == spoiled else "a cat"
        lines.append(mark.join([url(number), str(number), caption]))
    return end.join(lines) + end


FORMS = {
    "m.csv": table(),
    "semicolons.csv": table(";"),
    "m.tsv": table("\t"),
    "crlf.csv": table(end="\r\n"),
    "m.csv.gz": table(),
    "bom.csv": "\ufeff" + table(),
}


def write(path, text):
    content = text.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", FORMS)
def test_an_open_quote_is_an_error_with_its_line(tmp_path, name):
    """An unclosed quote is an error with the file and the line of the quote."""
    path = write(tmp_path / name, FORMS[name])
    with pytest.raises(
        ManifestError, match="a quote is opened here and not closed: line 13 looks like a row"
    ) as raised:
        list(ManifestReader(path))
    assert str(raised.value).startswith(f"{path}:12: ")
    assert "--lenient" in raised.value.hint


def test_an_open_quote_on_standard_input_is_the_same_error():
    """Standard input is checked like a file."""
    with pytest.raises(ManifestError, match=r"-:12: a quote is opened here"):
        list(ManifestReader("-", stdin=io.BytesIO(table().encode())))


@pytest.mark.parametrize("name", FORMS)
def test_read_leniently_every_other_row_survives(tmp_path, name):
    """In lenient mode, the record is one bad row with its URL, and reading continues with the next line."""
    items = list(ManifestReader(write(tmp_path / name, FORMS[name]), options=LENIENT))
    assert [item.url for item in items] == [url(number) for number in range(1, 301)]
    (bad,) = (item for item in items if item.problem)
    assert bad.item_id == "11"
    assert bad.problem == "line 12 opens a quote that is not closed: line 13 looks like a row"


AT_THE_END = {
    "of several lines": 'url,note\n{0},"open\nand so on\n',
    "of one line": 'url,note\n{0},"open',
    "without a line end": 'url,note\n{0},"open\nand so on',
    "that spoils what closes it": 'url,note\n{0},"open\nand "so" on\n',
}


@pytest.mark.parametrize("name", AT_THE_END)
def test_a_quote_open_at_the_end_of_the_file_is_an_error(name):
    """An unclosed quote in the last row is an error."""
    text = AT_THE_END[name].format(url(1)).encode()
    with pytest.raises(ManifestError, match=r"-:2: a quote is opened here and not closed"):
        list(ManifestReader("-", stdin=io.BytesIO(text)))
    first, *rest = ManifestReader("-", stdin=io.BytesIO(text), options=LENIENT)
    assert (first.url, "opens a quote" in first.problem) == (url(1), True)
    assert all(item.problem for item in rest)


def test_a_quote_that_a_later_row_closes_swallows_nothing():
    """A quoted field that contains a row counts as unclosed."""
    text = f'url,size\n{url(1)},"12\n{url(2)},13\n{url(3)},14"\n'
    with pytest.raises(ManifestError, match=":2: a quote is opened here"):
        list(ManifestReader("-", stdin=io.BytesIO(text.encode())))
    items = list(ManifestReader("-", stdin=io.BytesIO(text.encode()), options=LENIENT))
    assert [item.url for item in items] == [url(1), url(2), url(3)]
    assert [item.extra["size"] for item in items] == ["12\n", "13", '14"']


def test_the_line_is_that_of_the_quote_not_of_the_record():
    """The line of the error is that of the quote, not of the start of the record."""
    text = f'url,a,b\n{url(1)},"x\ny","open\n{url(2)},1,2\n'
    with pytest.raises(ManifestError, match=":3: a quote is opened here"):
        list(ManifestReader("-", stdin=io.BytesIO(text.encode())))


def test_rows_of_paths_and_of_a_named_column_are_known_as_rows():
    """A media file's name in the path column, or a URL in the column that was named, makes a line look like a row."""
    text = 'path,note\na.jpg,"open\nb.mp4,x\n'
    with pytest.raises(ManifestError, match="line 3 looks like a row"):
        list(ManifestReader("-", stdin=io.BytesIO(text.encode())))
    text = f'note,picture\n"open,{url(1)}\nx,{url(2)}\n'
    with pytest.raises(ManifestError, match="line 3 looks like a row"):
        list(ManifestReader("-", stdin=io.BytesIO(text.encode()), options=ReadOptions(url_column="picture")))


CAPTIONS = {
    "two lines": "first line\nsecond line",
    "delimiters": "one, two\nthree, four\n,",
    "a link alone in its line": "see\nhttps://example.com/more\nand go",
    "doubled quotes": 'she said "no"\nand "yes"',
    "blank lines": "\n\n\n",
    "CRLF": "first\r\nsecond",
}


@pytest.mark.parametrize("name", CAPTIONS)
def test_a_caption_with_line_breaks_stays_one_cell(name):
    """A quoted field of several lines, none of which looks like a row, is kept whole."""
    written = io.StringIO()
    csv.writer(written).writerows([["url", "caption", "id"], [url(1), CAPTIONS[name], 1], [url(2), "x", 2]])
    items = list(ManifestReader("-", stdin=io.BytesIO(written.getvalue().encode())))
    assert [item.problem for item in items] == [None, None]
    assert items[0].extra == {"caption": CAPTIONS[name]}


def test_a_caption_may_end_in_the_line_of_its_url():
    """Text after a closed quote is not checked as a row."""
    text = f'note,url\n"one\ntwo",{url(1)}\n"one\n{url(9)}",{url(2)}\n'
    items = list(ManifestReader("-", stdin=io.BytesIO(text.encode())))
    assert [(item.url, item.extra["note"]) for item in items] == [(url(1), "one\ntwo"), (url(2), f"one\n{url(9)}")]


def test_a_row_that_closes_the_quote_itself_is_not_swallowed():
    """A row that closes the quote of the row before it is detected."""
    for text in (f'url,size\n{url(1)},"12\n{url(2)},14"\n', f'url,size,n\n{url(1)},"12\n{url(2)},14",3\n'):
        with pytest.raises(ManifestError, match="line 3 looks like a row"):
            list(ManifestReader("-", stdin=io.BytesIO(text.encode())))


def test_a_header_may_have_line_breaks_and_must_close_its_quotes():
    """A column name may have two lines; a header with an unclosed quote is an error in any mode."""
    (item,) = ManifestReader("-", stdin=io.BytesIO(f'url,"two\nlines"\n{url(1)},x\n'.encode()))
    assert item.extra == {"two\nlines": "x"}
    for options in (ReadOptions(), LENIENT):
        stdin = io.BytesIO(f'url,"note\n{url(1)},x\n{url(2)},y\n'.encode())
        with pytest.raises(ManifestError, match="-:1: a quote is opened here and not closed: line 2 looks like a row"):
            list(ManifestReader("-", stdin=stdin, options=options))


class Endless(io.RawIOBase):
    """Stream of an endless table whose first row opens a quote."""

    def __init__(self, line: bytes) -> None:
        self.start = b'url,note\nhttps://example.com/1.jpg,"'
        self.line = line
        self.given = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the header and the row with the quote first, then the same line again and again."""
        text, self.start = self.start, b""
        text = (text + self.line * (size // len(self.line) + 1))[:size]
        self.given += len(text)
        return text


@pytest.mark.parametrize("line", [b"x\n", b'","x\n', b"\n"])
def test_an_open_field_without_end_is_an_error_not_a_full_memory(line):
    """An endless record is refused after about a mebibyte."""
    endless = Endless(line)
    with pytest.raises(ManifestError, match="a quote is opened here and not closed"):
        list(ManifestReader("-", stdin=endless))
    assert endless.given <= 4 * MAX_RECORD_CHARS


FIELD = st.text(st.sampled_from('ab",;\n'), max_size=6)


@given(fields=st.lists(FIELD, min_size=1, max_size=4), open_field=FIELD)
def test_the_opening_line_is_found_whatever_stands_before(fields, open_field):
    """The line of the last quote that is opened is the count of line breaks before it."""
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator="").writerow(fields)
    before = written.getvalue() + ","
    text = before + '"' + open_field.replace('"', '""')
    assert opening_line(text.splitlines(keepends=True), ",") == before.count("\n")


@given(
    rows=st.lists(st.tuples(st.text(st.sampled_from('a ,"\n\r;é'), max_size=12)), min_size=1, max_size=6),
    lenient=st.booleans(),
)
def test_what_a_csv_writer_writes_comes_back(rows, lenient):
    """Any valid CSV is read back cell for cell."""
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow(["url", "note"])
    writer.writerows([[url(number), note] for number, (note,) in enumerate(rows)])
    items = list(
        ManifestReader("-", stdin=io.BytesIO(written.getvalue().encode()), options=ReadOptions(lenient=lenient))
    )
    assert [(item.problem, item.extra["note"]) for item in items] == [(None, note) for (note,) in rows]
