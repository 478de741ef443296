"""Documents: text, Markdown and the text layer of PDF, searched with SQLite FTS5.

A document is indexed as passages. Each is a slice of the document's text, so that every result can be checked at its offsets,
which count characters. The passages cover about 80 to 200 words and end at a paragraph or a sentence where they can.
"""

from __future__ import annotations

import io
import logging
import re
import resource
import signal
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from typing import Any

MAX_CHARS = 50_000_000
"""Maximum total length of the documents in characters. It also limits the number of passages."""

MAX_QUOTE_CHARS = 10_000
"""Maximum length of a quotation in characters."""

MAX_RESULTS = 50
"""Maximum number of results of a search."""

MAX_TERMS = 64
"""Maximum number of different words of a query that are searched."""

MAX_PAGES = 10_000
"""Maximum number of pages of a PDF."""

PDF_CPU_S = 30.0
"""Maximum CPU time in seconds for reading one PDF. A store of a request has the lower limit of a query."""

PDF_MEMORY = 1 << 30
"""Maximum memory in bytes for reading one PDF, besides what the process has already."""

_MIN_WORDS, _MAX_WORDS, _MAX_PASSAGE_CHARS = 80, 200, 2000
_NUM_LISTED, _LISTED_CHARS = 20, 80
_BOUNDARY = re.compile(
    r"""[.!?]["'”’)\]]{0,3}(?=\s)   # the end of a sentence
    | [。！？]
    | \n[ \t\r]{0,80}\n           # the end of a paragraph
    | \n(?=[ \t]{0,8}[-#*|>\d])    # before a heading, an item of a list, or a row of a table
    """,
    re.VERBOSE,
)
_TOKEN = re.compile(r"\S{1,1000}|\s+")
_IDEOGRAPH = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af])")
_PART = re.compile(r"\w+")


class Documents:
    """Open documents."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._passages: list[tuple[str, int, int]] = []
        self._index = sqlite3.connect(":memory:", check_same_thread=False)
        self._index.execute(
            "CREATE VIRTUAL TABLE passages USING fts5(body, content='', "
            "tokenize='porter unicode61 remove_diacritics 2')"
        )
        for name, text in texts.items():
            start = len(self._passages)
            self._passages += [(name, *each) for each in passages_of(text)]
            self._index.executemany(
                "INSERT INTO passages (rowid, body) VALUES (?, ?)",
                (
                    (number, _indexable(text[begin:end]))
                    for number, (_, begin, end) in enumerate(self._passages[start:], start)
                ),
            )
        self._index.commit()
        self.operations = {"describe": self.describe, "search": self.search, "quote": self.quote}

    def describe(self) -> dict[str, Any]:
        """Return the number of documents, passages and characters, and a line for each of the first documents."""
        lines = [
            f"{name[:_LISTED_CHARS]} ({len(text):,} characters): {_first_line(text)}"
            for name, text in list(self._texts.items())[:_NUM_LISTED]
        ]
        if len(self._texts) > _NUM_LISTED:
            lines.append(f"{len(self._texts) - _NUM_LISTED:,} more documents")
        num_chars = sum(map(len, self._texts.values()))
        return {
            "lines": lines,
            "size": {"documents": len(self._texts), "passages": len(self._passages), "characters": num_chars},
        }

    def search(self, query: str, limit: int = 5) -> list[dict[str, Any]]:
        """Return the passages with words of the query, best first.

        Each has `document`, its offsets `start` and `end`, its `text`, and a `score`, which is higher for a better match and
        can only be compared within one search.
        """
        if not 1 <= limit <= MAX_RESULTS:
            raise ValueError(f"limit: expected 1 to {MAX_RESULTS}, got {limit}")
        terms = _terms(query)
        if not terms:
            return []
        rows = self._index.execute(
            "SELECT rowid, bm25(passages) FROM passages WHERE passages MATCH ? ORDER BY bm25(passages), rowid LIMIT ?",
            (" OR ".join(terms), limit),
        )
        return [self._result(number, rank) for number, rank in rows.fetchall()]

    def quote(self, document: str, start: int, end: int) -> str:
        """Return the text of a document from the offset `start` to before the offset `end`."""
        text = self._texts.get(document)
        if text is None:
            known = ", ".join(list(self._texts)[:_NUM_LISTED])
            raise ValueError(f"document {document[:100]!r} does not exist; available: {known[:500]}")
        if not 0 <= start <= end <= len(text):
            raise ValueError(f"start and end: expected 0 <= start <= end <= {len(text)}, got {start} and {end}")
        if end - start > MAX_QUOTE_CHARS:
            raise ValueError(f"{end - start:,} characters requested, the limit of a quotation is {MAX_QUOTE_CHARS:,}")
        return text[start:end]

    def _result(self, number: int, rank: float) -> dict[str, Any]:
        name, start, end = self._passages[number]
        text = self._texts[name][start:end]
        return {"document": name, "start": start, "end": end, "text": text, "score": round(-rank, 6)}


def open_store(files: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> Documents:
    """Read the documents and index them.

    Args:
        files: the documents.
        settings: `is_limited`, whether this process has limits of time and memory already.

    Raises:
        ValueError: an unknown format, two documents of the same name, a document without text, or too much text.
    """
    texts: dict[str, str] = {}
    num_chars = 0
    for file in files:
        name = file["name"]
        if name in texts:
            raise ValueError(f"{name}: a second document of this name")
        if file["format"] == "pdf":
            bounds = nullcontext() if settings.get("is_limited") else _bounded()
            text = _pdf_text(name, file["data"], max_chars=MAX_CHARS - num_chars, bounds=bounds)
        elif file["format"] in ("text", "markdown"):
            text = _decoded(name, file["data"])
        else:
            raise ValueError(f"{name}: format {file['format']!r} given, expected text, markdown or pdf")
        num_chars += len(text)
        if num_chars > MAX_CHARS:
            raise ValueError(f"{name}: the documents have more than {MAX_CHARS:,} characters")
        texts[name] = text
    return Documents(texts)


def passages_of(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each passage of a text, without blanks at its ends. Takes linear time."""
    start, words = 0, 0
    for begin, end, num_words, ends_paragraph in _pieces(text):
        if words and (words + num_words > _MAX_WORDS or end - start > _MAX_PASSAGE_CHARS):
            yield from _stripped(text, start, begin)
            start, words = begin, 0
        words += num_words
        if ends_paragraph and words >= _MIN_WORDS:
            yield from _stripped(text, start, end)
            start, words = end, 0
    yield from _stripped(text, start, len(text))


def _pieces(text: str) -> Iterator[tuple[int, int, int, bool]]:
    """Yield the sentences of a text: start, end, number of words, and whether a paragraph ends there. A sentence that is
    longer than a passage comes in parts."""
    place = 0
    for found in chain(_BOUNDARY.finditer(text), [None]):
        end = len(text) if found is None else found.end()
        words = 0
        for token in _TOKEN.finditer(text, place, end):
            words += not token[0].isspace()
            if words == _MAX_WORDS or token.end() - place >= _MAX_PASSAGE_CHARS:
                yield place, token.end(), words, False
                place, words = token.end(), 0
        yield place, end, words, found is not None and found[0].count("\n") == 2
        place = end


def _stripped(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    passage = text[start:end]
    left = start + len(passage) - len(passage.lstrip())
    right = start + len(passage.rstrip())
    if left < right:
        yield left, right


def _indexable(text: str) -> str:
    """Return a text with blanks around ideographs, so that each is a word, and without the character that ends strings."""
    return _IDEOGRAPH.sub(r" \1 ", text.replace("\0", " "))


def _terms(query: str) -> list[str]:
    """Return the words of a query as strings of FTS5. Of a word such as `e-mail`, the whole is a phrase, and the parts are
    words too."""
    words: dict[str, None] = {}
    for word in query.replace("\0", " ").replace('"', " ").split():
        parts = _PART.findall(word)
        words |= dict.fromkeys([word, *(part for part in parts if len(part) > 1)] if parts else ())
        if len(words) >= MAX_TERMS:
            break
    return ['"' + _IDEOGRAPH.sub(r" \1 ", word) + '"' for word in list(words)[:MAX_TERMS]]


def _first_line(text: str) -> str:
    start = text[:10_000].lstrip()
    line = start.partition("\n")[0].strip()
    return line if len(line) <= _LISTED_CHARS else line[: _LISTED_CHARS - 3] + "..."


def _decoded(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: not UTF-8 at byte {error.start}; save it as UTF-8") from None


class _PdfTooLarge(BaseException):
    """Stops the reading of a PDF. Not an Exception, because pypdf catches those to repair files."""


def _pdf_text(name: str, data: bytes, *, max_chars: int, bounds: AbstractContextManager[None]) -> str:
    """Return the text layer of a PDF, with an empty line between pages."""
    import pypdf

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        with bounds:
            reader = pypdf.PdfReader(io.BytesIO(data))
            if reader.is_encrypted:
                raise ValueError(f"{name}: the PDF is encrypted; save it without encryption")
            if len(reader.pages) > MAX_PAGES:
                raise ValueError(f"{name}: the PDF has {len(reader.pages):,} pages, the limit is {MAX_PAGES:,}")
            pages, num_chars = [], 0
            for page in reader.pages:
                pages.append(_clean(page.extract_text()))
                num_chars += len(pages[-1]) + 2
                if num_chars > max_chars:
                    raise ValueError(f"{name}: the documents have more than {MAX_CHARS:,} characters")
    except _PdfTooLarge:
        raise ValueError(f"{name}: reading the PDF takes more than {PDF_CPU_S:g} s of CPU time") from None
    except (MemoryError, RecursionError) as error:
        raise ValueError(f"{name}: reading the PDF takes too much memory ({type(error).__name__})") from None
    except ValueError as error:
        if str(error).startswith(f"{name}: "):
            raise
        raise ValueError(f"{name}: not readable as PDF: {str(error)[:200]}") from None
    except Exception as error:
        raise ValueError(f"{name}: not readable as PDF: {type(error).__name__}: {str(error)[:200]}") from None
    text = "\n\n".join(pages)
    if not text.strip():
        raise ValueError(f"{name}: the PDF has no text layer; recognize its text first (OCR), or attach the text")
    return text


@contextmanager
def _bounded() -> Iterator[None]:
    """Limit the CPU time and the memory of this process during the block.

    Raises:
        _PdfTooLarge: the CPU time is used up.
        MemoryError: the memory is used up.
    """

    def stop(*_: object) -> None:
        raise _PdfTooLarge

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as status:
        limit = int(status.read().split()[0]) * resource.getpagesize() + PDF_MEMORY
    if soft in (-1, resource.RLIM_INFINITY) or limit < soft:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, PDF_CPU_S, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _clean(text: str) -> str:
    """Return a text without lone surrogates, which are in the text of some PDFs and cannot be encoded."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
