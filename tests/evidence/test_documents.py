"""Stores of documents: passages with exact offsets, queries as people type them, and PDF."""

from __future__ import annotations

import io
import random
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import pypdf
import pytest

from tests.evidence.conftest import OpenStore, OpenStores, RunProgram, attached
from tirjudge.tools.functions import ToolError
from tirjudge_evidence.inside import documents

TEXT = (
    "# Cafés of Paris\n\nThe cafés of Paris were running well. O'Brien's e-mail is x@y.org; a coffee costs 3.50 EUR.\n\n"
    "北京是中国的首都。\n"
)


def loaded(name: str, content: str | bytes, *, format: str = "text", **settings: Any) -> documents.Documents:
    data = content.encode() if isinstance(content, str) else content
    return documents.open_store([{"name": name, "format": format, "data": data}], settings)


def text_of(store: documents.Documents, name: str) -> str:
    num_chars = store.describe()["size"]["characters"]
    return "".join(store.quote(name, start, min(start + 10_000, num_chars)) for start in range(0, num_chars, 10_000))


def sentences(count: int, *, seed: int = 1) -> str:
    chooser = random.Random(seed)
    parts = []
    for number in range(count):
        words = " ".join(f"word{chooser.randrange(500)}" for _ in range(chooser.randrange(3, 40)))
        parts.append(f"{words} 3.5{chooser.choice('.!?')}" + chooser.choice([" ", "\n", "\n\n", "\r\n\r\n"]))
        parts.append(f"unique{number} é 𝒳 ")
    return "".join(parts)


# ---------------------------------------------------------------------------------------------------------------- passages


def test_a_result_is_the_text_at_its_offsets() -> None:
    text = sentences(300)
    store = loaded("a", text)
    for number in range(0, 300, 7):
        results = store.search(f"unique{number}")
        assert len(results) == 1
        for result in results:
            assert f"unique{number}" in result["text"].split()
            assert result["text"] == text[result["start"] : result["end"]]
            if len(result["text"]) < documents.MAX_QUOTE_CHARS:
                assert store.quote("a", result["start"], result["end"]) == result["text"]


def test_passages_cover_the_text_in_order_and_end_at_sentences() -> None:
    text = sentences(400)
    passages = list(documents.passages_of(text))
    place, num_words = 0, []
    for start, end in passages:
        assert not text[place:start].strip()
        num_words.append(len(text[start:end].split()))
        place = end
    assert not text[place:].strip()
    assert max(num_words) <= 200
    assert min(num_words[:-1]) >= 80
    assert all(text[end - 1] in ".!?" for _, end in passages[:-1])


@pytest.mark.parametrize("unit", ["a", " ", "\n", "a ", "a\n\n", ". ", "北。", "\n-", '."', "\0"])
def test_any_text_is_cut_into_short_passages(unit: str) -> None:
    text = unit * (60_000 // len(unit))
    place = 0
    for start, end in documents.passages_of(text):
        assert place <= start < end
        assert end - start <= 4000
        assert not text[place:start].strip()
        place = end
    assert not text[place:].strip()


# ----------------------------------------------------------------------------------------------------------------- queries


@pytest.mark.parametrize(
    "query", ["cafe", "CAFÉ", "run", "O'Brien", "e-mail", "mail", "3.50", "capital:Paris", '"paris', "中国"]
)
def test_words_are_found_in_any_form(query: str) -> None:
    assert [each["document"] for each in loaded("a", TEXT).search(query)] == ["a"]


@pytest.mark.parametrize(
    "query",
    ["", " ", '"', "???", "*", "NEAR(", "AND OR NOT", "-", "{a b}", "body:", "a" * 100_000, "x " * 50_000, "\0"],
)
def test_any_text_is_a_query(query: str) -> None:
    assert loaded("a", "nothing of this kind").search(query) == []


def test_the_best_passage_comes_first() -> None:
    files = [
        {"name": name, "format": "text", "data": text.encode()}
        for name, text in {
            "a": "The river is long. " * 5,
            "b": "The interest rate of the loan is 4 percent.",
            "c": "A loan has a rate.",
        }.items()
    ]
    store = documents.open_store(files, {})
    results = store.search("interest rate of a loan", 2)
    assert [each["document"] for each in results] == ["b", "c"]
    assert results[0]["score"] > results[1]["score"] > 0


@pytest.mark.parametrize(
    ("operation", "arguments", "problem"),
    [
        ("search", {"query": "a", "limit": 0}, "limit: expected 1 to 50, got 0"),
        ("search", {"query": "a", "limit": 51}, "limit: expected 1 to 50"),
        ("quote", {"document": "../b", "start": 0, "end": 1}, "document '../b' does not exist; available: a"),
        ("quote", {"document": "a", "start": -1, "end": 1}, "expected 0 <= start <= end <= 20000, got -1 and 1"),
        ("quote", {"document": "a", "start": 2, "end": 1}, "got 2 and 1"),
        ("quote", {"document": "a", "start": 0, "end": 20_001}, "got 0 and 20001"),
        (
            "quote",
            {"document": "a", "start": 0, "end": 10_001},
            "10,001 characters requested, the limit of a quotation",
        ),
    ],
)
def test_wrong_arguments_are_named(operation: str, arguments: Mapping[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        loaded("a", "a" * 20_000).operations[operation](**arguments)


async def test_documents_are_queried_in_processes_of_their_own(open_one: OpenStore) -> None:
    store = await open_one("documents", {"a.md": TEXT, "b.txt": "\ufeffplain"}, world="closed")
    assert store.card.lines == [f"a.md ({len(TEXT)} characters): # Cafés of Paris", "b.txt (5 characters): plain"]
    (found,) = await store.ask("search", query="cafes")
    assert await store.ask("quote", document="a.md", start=found["start"], end=found["end"]) == found["text"]
    with pytest.raises(ToolError, match="document 'c' does not exist"):
        await store.ask("quote", document="c", start=0, end=1)


@pytest.mark.slow
async def test_a_program_searches_documents_of_its_request(opened: OpenStores, run_program: RunProgram) -> None:
    code = (
        "found = search('notes', 'capital')[0]\n"
        "print(found['document'], quote('notes', found['document'], found['start'], found['end']) == found['text'])\n"
        "for call in (lambda: search('notes', 3), lambda: quote('notes', 'a', True, 3), lambda: sql('notes', 'SELECT 1')):\n"
        "    try: print(call())\n"
        "    except ToolError as error: print(error)"
    )
    notes = attached("notes", "Paris is the capital.", kind="documents", format="text", file="../../etc/passwd")
    result = await run_program(code, await opened(), notes)
    assert result.stdout.splitlines() == [
        "../../etc/passwd True",
        "search: query: Input should be a valid string",
        "quote: start: Input should be a valid integer",
        "sql: notes is a store of kind documents, which has no sql",
    ], result


# --------------------------------------------------------------------------------------------------------- files and limits


def pdf(*pages: bytes) -> bytes:
    """Return a PDF whose pages have the given content streams."""
    kids = b" ".join(b"%d 0 R" % (4 + 2 * number) for number in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(pages), kids),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, page in enumerate(pages):
        content = zlib.compress(page)
        objects += [
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Resources << /Font << /F1 3 0 R >> >> /Contents %d 0 R >>"
            % (5 + 2 * number),
            b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(content), content),
        ]
    return _written(objects)


def _written(objects: Sequence[bytes]) -> bytes:
    out = io.BytesIO()
    out.write(b"%PDF-1.4\n")
    places = []
    for number, content in enumerate(objects, 1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, content))
    table = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.write(b"".join(b"%010d 00000 n \n" % place for place in places))
    out.write(b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table))
    return out.getvalue()


def shown(text: str) -> bytes:
    return b"BT /F1 12 Tf 72 700 Td (%s) Tj ET" % text.encode()


def encrypted(content: bytes) -> bytes:
    writer, out = pypdf.PdfWriter(clone_from=io.BytesIO(content)), io.BytesIO()
    writer.encrypt("secret", algorithm="RC4-128")
    writer.write(out)
    return out.getvalue()


def test_the_text_layer_of_a_pdf_is_a_document() -> None:
    store = loaded("a.pdf", pdf(shown("Hello world."), shown("Second page.")), format="pdf")
    assert text_of(store, "a.pdf") == "Hello world.\n\nSecond page."
    (found,) = store.search("second")
    assert (found["start"], found["end"]) == (0, 26)


@pytest.mark.parametrize(
    ("format", "content", "problem"),
    [
        ("text", "café".encode("latin-1"), "a: not UTF-8 at byte 3; save it as UTF-8"),
        ("csv", b"a", "a: format 'csv' given, expected text, markdown or pdf"),
        ("pdf", b"", "a: not readable as PDF: EmptyFileError"),
        ("pdf", b"%PDF-1.4 junk", "a: not readable as PDF"),
        ("pdf", pdf(b"0 0 m 10 10 l S"), "a: the PDF has no text layer"),
        ("pdf", pdf(), "a: the PDF has no text layer"),
        ("pdf", encrypted(pdf(shown("secret"))), "a: the PDF is encrypted"),
        ("pdf", pdf(b"[" * 100_000), "a: "),
        ("pdf", pdf(b" " * 80_000_000), "a: not readable as PDF: LimitReachedError"),
    ],
    ids=["latin-1", "csv", "empty", "junk", "no text", "no pages", "encrypted", "nested", "bomb"],
)
def test_a_document_that_cannot_be_read_is_named(format: str, content: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        loaded("a", content, format=format)


# The signal can arrive in a callback whose exceptions Python ignores and reports. It is sent again after a second.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_slow_pdf_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "PDF_CPU_S", 0.2)
    content = pdf(b"BT /F1 12 Tf " + b"(a) Tj " * 1_000_000 + b"ET")
    assert len(content) < 20_000
    with pytest.raises(ValueError, match=r"a: reading the PDF takes more than 0\.2 s of CPU time"):
        loaded("a", content, format="pdf")


def test_many_pages_and_long_texts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_PAGES", 2)
    with pytest.raises(ValueError, match="a: the PDF has 3 pages, the limit is 2"):
        loaded("a", pdf(*[shown("x")] * 3), format="pdf")
    monkeypatch.setattr(documents, "MAX_CHARS", 10)
    for format, content in (("text", b"a" * 11), ("pdf", pdf(shown("a" * 11)))):
        with pytest.raises(ValueError, match="a: the documents have more than 10 characters"):
            loaded("a", content, format=format)


def test_two_documents_of_the_same_name_are_refused() -> None:
    file = {"name": "a", "format": "text", "data": b"x"}
    with pytest.raises(ValueError, match="a: a second document of this name"):
        documents.open_store([file, file], {})


async def test_a_registered_pdf_that_cannot_be_read_fails_at_the_start(open_one: OpenStore) -> None:
    with pytest.raises(ValueError, match=r"^facts: a\.pdf: the PDF is encrypted; save it without encryption"):
        await open_one("documents", {"a.pdf": encrypted(pdf(shown("secret")))})
