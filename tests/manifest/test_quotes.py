"""Quotes in CSV and TSV: fields with line breaks are kept whole, and a quote that is not closed swallows no row."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.errors import ManifestError
from lightmeter.manifest.csv_records import MAX_RECORD_CHARS
from lightmeter.manifest.readers import ManifestReader
from lightmeter.manifest.row_parser import ReadOptions

STRICT = ReadOptions()
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


def read(text, options=STRICT):
    """Return the items of a CSV manifest on standard input."""
    return list(ManifestReader("-", stdin=io.BytesIO(text.encode()), options=options))


@pytest.mark.parametrize("name", FORMS)
def test_an_open_quote_is_an_error_with_its_line(tmp_path, name):
    """An unclosed quote is an error with the file and the line of the quote."""
    path = write(tmp_path / name, FORMS[name])
    with pytest.raises(
        ManifestError, match="a quote is opened here, and the file ends before the quote that"
    ) as raised:
        list(ManifestReader(path))
    assert str(raised.value).startswith(f"{path}:12: ")
    assert "--lenient" in raised.value.hint


def test_an_open_quote_on_standard_input_is_the_same_error():
    """Standard input is checked like a file."""
    with pytest.raises(ManifestError, match=r"-:12: a quote is opened here"):
        read(table())


@pytest.mark.parametrize("name", FORMS)
def test_read_leniently_the_rows_before_the_quote_survive(tmp_path, name):
    """In lenient mode, the rows before a broken quote are read, and one bad row says which lines are not."""
    items = list(ManifestReader(write(tmp_path / name, FORMS[name]), options=LENIENT))
    assert [item.url for item in items] == [*(url(number) for number in range(1, 11)), ""]
    (bad,) = (item for item in items if item.problem)
    assert bad.problem == (
        "line 12 opens a quote, and the file ends before the quote that closes it: "
        "nothing from there to line 301 is read"
    )


VALID = {
    "a row in a caption": ('path,note\ncoffee.jpg,"line\nphoto.jpg,x"\n', ["coffee.jpg"]),
    "a row of URLs": (f'url,note\n{url(1)},"12\n{url(2)},13\n{url(3)},14"\n', [url(1)]),
    "a row that closes it": (f'url,note\n{url(1)},"12\n{url(2)},14"\n{url(3)},x\n', [url(1), url(3)]),
    "a part of a row": (f'url,note,n\n{url(1)},"12\n{url(2)},14",3\n', [url(1)]),
    "the address last": (f'note,url\n"x,{url(1)}\ny,{url(2)}",{url(3)}\n', [url(3)]),
    "two captions": ('path,note\na.jpg,"x\nb.jpg,y"\nc.jpg,"x\nd.jpg,y"\n', ["a.jpg", "c.jpg"]),
}


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("name", VALID)
def test_a_line_in_quotes_is_never_a_row(name, lenient):
    """What stands in a quoted field is text, whatever it looks like, and a note says that it looks like a row."""
    text, expected = VALID[name]
    reader = ManifestReader("-", stdin=io.BytesIO(text.encode()), options=ReadOptions(lenient=lenient))
    assert [(item.url, item.problem) for item in reader] == [(address, None) for address in expected]
    (note,) = reader.notes
    assert "looks like a row but stands inside quotes" in note


BROKEN = {
    "text behind the quote": ('path,note\na.jpg,"he said "hi" to\nphoto.jpg,x"\nb.jpg,y\n', 2, "in line 2 text"),
    "an inch in quotes": ('path,note\na.jpg,x\nb.jpg,"a 5" pan\nphoto.jpg,x\nmore"\nc.jpg,y\n', 3, "in line 3 text"),
    "a quote of a later row": ('path,note\na.jpg,"open\nphoto.jpg,x\nb.jpg,"y"\nc.jpg,z\n', 2, "in line 4 text"),
    "a row that another closes": ('path,note\na.jpg,"x\ny"z,"w"\nphoto.jpg,x\n', 2, "in line 3 text"),
    "the second quoted field": ('path,a,note\na.jpg,"x\ny","open\nphoto.jpg,1,2\n', 3, "the file ends"),
    "the end of the file": ('path,note\na.jpg,"open', 2, "the file ends"),
    "a quote that spoils its end": ('path,note\na.jpg,"open\nand "so" on\n', 2, "in line 3 text"),
    "a quoted address": ('path,note\n"a.jpg"x,y\nphoto.jpg,x\n', 2, "in line 2 text"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_no_line_behind_a_broken_quote_is_a_row(name):
    """The error names the line in which the quote opens; read leniently, no line from there on is a row to send."""
    text, line, reason = BROKEN[name]
    with pytest.raises(ManifestError, match=f"-:{line}: a quote is opened here, and {reason}"):
        read(text)
    *good, bad = read(text, LENIENT)
    assert len(good) == line - 2 - text.count('y",')
    assert (bad.url, bad.problem.startswith(f"line {line} opens a quote, and {reason}")) == ("", True)


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


def test_a_header_may_have_line_breaks_and_must_close_its_quotes():
    """A column name may have two lines, also the first one; a header with a broken quote is an error in any mode."""
    (item,) = read(f'url,"two\nlines"\n{url(1)},x\n')
    assert item.extra == {"two\nlines": "x"}
    (item,) = read(f'"two\nlines";url\nx;{url(1)}\n')
    assert (item.url, item.extra) == (url(1), {"two\nlines": "x"})
    for options in (ReadOptions(), LENIENT):
        with pytest.raises(ManifestError, match="-:1: a quote is opened here, and the file ends"):
            read(f'url,"note\n{url(1)},x\n{url(2)},y\n', options)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_every_line_end_and_unicode_encoding_is_read(encoding, end):
    """LF, CRLF and CR end a line, in UTF-8 and in UTF-16 with its mark; inside quotes they stay as they are."""
    text = end.join(["url,note", f'{url(1)},"é{end}ü"', f'{url(2)},7" tablet', ""])
    items = list(ManifestReader("-", stdin=io.BytesIO(text.encode(encoding))))
    assert [(item.url, item.extra["note"]) for item in items] == [(url(1), f"é{end}ü"), (url(2), '7" tablet')]


@pytest.mark.parametrize("size", [140_000, 10_000_000])
@pytest.mark.parametrize("quote", ["", '"'])
def test_a_long_field_is_a_field(size, quote):
    """A field of 140 kB or of 10 MB is read, quoted or not."""
    long, short = read(f"url,thumb\n{url(1)},{quote}{'A' * size}{quote}\n{url(2)},x\n")
    assert (len(long.extra["thumb"]), short.extra["thumb"], long.problem) == (size, "x", None)


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
        text += self.line * ((size - len(text)) // len(self.line))  # whole lines
        self.given += len(text)
        return text


@pytest.mark.parametrize("line", [b"x\n", b'","x\n', b"\n"])
def test_an_open_field_without_end_is_an_error_not_a_full_memory(line):
    """An endless record is refused at its bound."""
    endless = Endless(line)
    with pytest.raises(ManifestError, match="a quote is opened here, and it, or its record, is longer"):
        list(ManifestReader("-", stdin=endless))
    assert endless.given <= 2 * MAX_RECORD_CHARS


FIELD = st.text(st.sampled_from('ab",;\n'), max_size=6)


@given(fields=st.lists(FIELD, min_size=1, max_size=4), open_field=FIELD.filter(lambda text: not text.startswith('"')))
def test_the_opening_line_is_found_whatever_stands_before(fields, open_field):
    """The line of a quote that is never closed is the count of line breaks before it."""
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator="").writerow([url(1), *fields])
    before = f"url\n{written.getvalue()},"
    with pytest.raises(ManifestError, match=f"-:{before.count(chr(10)) + 1}: a quote is opened here"):
        read(before + '"' + open_field.replace('"', '""'))


@given(text=st.text(st.sampled_from('a",\n\r;'), max_size=30), lenient=st.booleans())
def test_what_is_sent_is_what_the_csv_module_says(text, lenient):
    """For any text, the addresses are those of the records of Python's strict parser, up to the first broken one."""
    text = f"path,note\n{text}"
    expected: list[str] = []
    try:
        for record in list(csv.reader(io.StringIO(text, newline=""), strict=True))[1:]:
            expected += [record[0].strip()] if len(record) == 2 else []
        is_broken = False
    except csv.Error:
        is_broken = True
    try:
        items = read(text, ReadOptions(lenient=lenient))
    except ManifestError:
        assert (is_broken, lenient) == (True, False)
        return
    if not is_broken:
        assert [item.url for item in items if item.problem in {None, "neither a URL nor a path"}] == expected
    else:
        expected = []
        with contextlib.suppress(csv.Error):
            for record in csv.reader(io.StringIO(text, newline=""), strict=True):
                expected.append(record[0] if record else "")
        assert {item.url for item in items} <= {address.strip() for address in expected} | {""}


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
