"""The index of a run: an SQLite file with the view of the run and one row per item.

A page of a run with 100,000 items needs the rows of that page only. The judgments stay in the journal of the run; the index
has their positions. The journal only grows, so that a position stays valid.

pages.db     in the folder of the run, written by `tirjudge bench index`
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tirjudge.durable import close_to_others, replacing_file
from tirjudge.errors import TirjudgeError
from tirjudge.types import ChatMessage, Judgment
from tirjudge_pages.bench.views import ComparisonView, RunView
from tirjudge_pages.judgment import JudgmentView

INDEX = "pages.db"
"""Name of the index in the folder of a run."""

JOURNAL = "journal.jsonl"
"""Name of the file with the judgments, one JSON object with the field `judgment` per line."""

RUN_FILES = ("manifest.json", "outlines.jsonl", JOURNAL, "failures.jsonl")
"""Files of a run. A change of one of them makes the index out of date."""

_VERSION = 1
"""Version of the tables and views. An index of another version is out of date."""

CONDITIONS: Mapping[str, str] = {
    "wrong": "result = 'wrong'",
    "flipped": "flipped",
    "forced": "forced",
    "tie": "result = 'tie'",
    "abstained": "abstained",
    "tool_error": "errors != ''",
    "missing": "NOT judged",
}
"""Name of a condition on items -> the SQL expression."""

CONDITION_NAMES: Mapping[str, str] = {
    "wrong": "wrong",
    "flipped": "flipped with the order",
    "forced": "forced verdict",
    "tie": "tie",
    "abstained": "abstained",
    "tool_error": "program failed",
    "missing": "not judged",
}
"""Name of a condition -> its text for readers."""

EVAL_CONDITION_NAMES: Mapping[str, str] = {"wrong": "failed", "missing": "error"}
"""The same for a run of an eval. Its items meet no other condition."""

_TABLES = """
CREATE TABLE documents (name TEXT PRIMARY KEY, json TEXT NOT NULL);
CREATE TABLE items (
    place INTEGER PRIMARY KEY, id TEXT NOT NULL, subset TEXT NOT NULL, result TEXT, flipped INTEGER NOT NULL,
    forced INTEGER NOT NULL, abstained INTEGER NOT NULL, judged INTEGER NOT NULL, confidence REAL, bases TEXT NOT NULL,
    errors TEXT NOT NULL, problem TEXT, correct TEXT NOT NULL, answers TEXT NOT NULL, texts TEXT
);
"""

_LISTED = "place, id, subset, result, flipped, forced, abstained, judged, confidence, bases, errors"


class IndexUnusable(TirjudgeError):
    """The index is missing, damaged, or does not match the journal. It has to be written again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPlace:
    """Where the journal has a judgment about some responses of an item."""

    responses: tuple[int, ...]
    """Indexes of the responses, in the order of the request."""
    offset: int
    """Position of the line in the journal, in bytes."""
    size: int
    """Length of the line in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedItem:
    """An item as it is listed."""

    place: int
    """Position in the run, from 0."""
    id: str
    subset: str
    """Empty: the benchmark has no subsets."""
    result: str | None
    """Worst result of its comparisons: `right`, `wrong`, `tie` or `none` (no verdict). None: not scored."""
    flipped: bool
    """Whether two orders of the same responses lead to different responses."""
    forced: bool
    """Whether a verdict was forced."""
    abstained: bool
    """Whether a judgment has no verdict."""
    judged: bool
    """Whether all its requests are answered."""
    confidence: float | None
    """Highest confidence of its judgments, 0 to 1. None: not known."""
    bases: tuple[str, ...]
    """Bases of its verdicts: `checked`, `reasoned`, `guessed`."""
    errors: tuple[str, ...]
    """Kinds of errors of its programs, such as `syntax`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedItem:
    """An item as it is stored."""

    listed: ListedItem
    problem: str | None
    """Error of a failed request. None: no request failed."""
    correct: tuple[int, ...]
    """Indexes of the right responses."""
    answers: tuple[AnswerPlace, ...]
    """The judgments."""
    prompt: str | tuple[ChatMessage, ...] | None = None
    """None: not stored."""
    responses: tuple[str, ...] | None = None
    """None: not stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAnswer:
    """A judgment about some responses of an item."""

    responses: tuple[int, ...]
    """Indexes of the responses, in the order of the request."""
    judgment: Judgment

    def view(self, *, id: str, max_chars: int) -> JudgmentView:
        """Return what a page shows of the judgment. Arguments: see `JudgmentView`."""
        return JudgmentView(self.judgment, request={}, responses=self.responses, id=id, max_chars=max_chars)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemQuery:
    """Conditions on items. An item must meet all of them."""

    conditions: frozenset[str] = frozenset()
    """Names from `CONDITIONS`."""
    subset: str | None = None
    basis: str | None = None
    error: str | None = None
    """Kind of error of a program."""
    id: str | None = None
    """Part of the id."""
    by_confidence: bool = False
    """Whether the most confident items come first. False: the order of the run."""

    @property
    def where(self) -> tuple[str, list[Any]]:
        """The SQL condition and its parameters."""
        parts = [CONDITIONS[name] for name in sorted(self.conditions)]
        given = (
            ("subset = ?", self.subset),
            ("instr(bases, ?)", None if self.basis is None else f" {self.basis} "),
            ("instr(errors, ?)", None if self.error is None else f" {self.error} "),
            ("instr(id, ?)", self.id),
        )
        chosen = [(part, value) for part, value in given if value is not None]
        return " AND ".join([*parts, *(part for part, _ in chosen)]) or "1", [value for _, value in chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedItem:
    """An item with different results in two runs."""

    id: str
    subset: str
    first: str
    """Result in the first run."""
    second: str
    """Result in the second run."""
    first_place: int
    """Position in the first run."""
    second_place: int
    """Position in the second run."""


CHANGES: Mapping[str, str] = {
    "all": "1",
    "gained": "b.result = 'right'",
    "lost": "a.result = 'right'",
}
"""Name of a kind of change -> the SQL expression. `gained`: right in the second run only; `lost`: in the first run only."""


def run_fingerprint(folder: Path) -> str:
    """Return a text that changes when a file of a run changes."""
    parts = []
    for name in RUN_FILES:
        try:
            status = (folder / name).stat()
        except FileNotFoundError:
            parts.append("-")
        else:
            parts.append(f"{status.st_size}.{status.st_mtime_ns}")
    return f"{_VERSION}/" + "/".join(parts)


def comparison_file(second: Path, *, first: Path) -> Path:
    """Return the path of the comparison of two runs, in the folder of the second."""
    return second / f"pages-compared-{hashlib.sha256(str(first.resolve()).encode()).hexdigest()[:16]}.json"


def read_comparison(second: Path, *, first: Path) -> ComparisonView | None:
    """Return the stored comparison of two runs. None: there is none, or a run has changed since."""
    try:
        view = ComparisonView.model_validate_json(comparison_file(second, first=first).read_bytes())
    except (OSError, ValidationError):
        return None
    return view if view.fingerprints == (run_fingerprint(first), run_fingerprint(second)) else None


def write_index(path: Path, *, view: RunView, items: Iterable[IndexedItem], fingerprint: str) -> None:
    """Write an index, readable by its owner only. It replaces an older one when it is complete.

    Args:
        path: file to write.
        view: the run as a whole.
        items: its items.
        fingerprint: `run_fingerprint` of the run before it was read.

    Raises:
        OSError: the folder is not writable, or the disk is full.
    """
    with replacing_file(path) as unfinished:
        unfinished.touch(mode=0o600)
        close_to_others(unfinished)
        with closing(sqlite3.connect(unfinished)) as database:
            # A killed process leaves only the temporary file.
            database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _TABLES)
            documents = [("fingerprint", fingerprint), ("run", view.model_dump_json())]
            database.executemany("INSERT INTO documents VALUES (?, ?)", documents)
            columns = ", ".join("?" * 15)
            database.executemany(f"INSERT INTO items VALUES ({columns})", map(_row, items))
            database.execute("CREATE INDEX items_by_id ON items (id)")
            database.commit()


class RunIndex:
    """Reads the index of a run.

    Args:
        folder: the folder of the run.
        path: the index. None: `INDEX` in the folder.
    """

    def __init__(self, folder: Path, *, path: Path | None = None) -> None:
        self.folder = folder
        self.path = path or folder / INDEX

    @property
    def is_current(self) -> bool:
        """Whether the run has not changed since the index was written."""
        try:
            return self._document("fingerprint") == run_fingerprint(self.folder)
        except IndexUnusable:
            return False

    @cached_property
    def view(self) -> RunView:
        """The run as a whole.

        Raises:
            IndexUnusable: there is no index that this version can read.
        """
        try:
            return RunView.model_validate_json(self._document("run"))
        except ValidationError as error:
            raise IndexUnusable(f"{self.path}: written by another version of tirjudge") from error

    @property
    def condition_names(self) -> Mapping[str, str]:
        """Name of a condition that items can meet -> its text for readers. Raises IndexUnusable as `view`."""
        return EVAL_CONDITION_NAMES if self.view.is_eval else CONDITION_NAMES

    @cached_property
    def subsets(self) -> list[str]:
        """The subsets of the items, sorted. Raises IndexUnusable as `view`."""
        with self._database() as database:
            return [name for (name,) in database.execute("SELECT DISTINCT subset FROM items ORDER BY subset") if name]

    @cached_property
    def bases(self) -> list[str]:
        """The bases of the verdicts, sorted. Raises IndexUnusable as `view`."""
        return self._words("bases")

    @cached_property
    def errors(self) -> list[str]:
        """The kinds of errors of the programs, sorted. Raises IndexUnusable as `view`."""
        return self._words("errors")

    def count(self, query: ItemQuery) -> int:
        """Return the number of items that meet conditions. Raises IndexUnusable as `view`."""
        where, values = query.where
        with self._database() as database:
            return database.execute(f"SELECT count(*) FROM items WHERE {where}", values).fetchone()[0]

    def counts(self) -> dict[str, int]:
        """Return the number of items of each condition, in one pass. Raises IndexUnusable as `view`."""
        sums = ", ".join(f"count(*) FILTER (WHERE {condition})" for condition in CONDITIONS.values())
        with self._database() as database:
            found = database.execute(f"SELECT {sums} FROM items").fetchone()
        return dict(zip(CONDITIONS, found, strict=True))

    def listed(self, query: ItemQuery, *, first: int, num: int) -> list[ListedItem]:
        """Return items that meet conditions. Raises IndexUnusable as `view`.

        Args:
            query: the conditions.
            first: number of items to skip.
            num: maximum number of items.
        """
        where, values = query.where
        order = "confidence DESC, place" if query.by_confidence else "place"
        sql = f"SELECT {_LISTED} FROM items WHERE {where} ORDER BY {order} LIMIT ? OFFSET ?"
        with self._database() as database:
            return [_listed(row) for row in database.execute(sql, [*values, num, first])]

    def items(self, *, first: int, num: int) -> list[IndexedItem]:
        """Return the items from the place `first` on, at most `num`. Raises IndexUnusable as `view`."""
        sql = f"SELECT {_LISTED}, problem, correct, answers, texts FROM items WHERE place >= ? ORDER BY place LIMIT ?"
        with self._database() as database:
            return [_indexed(row) for row in database.execute(sql, [first, num])]

    def answers(self, item: IndexedItem) -> list[ReadAnswer]:
        """Read the judgments of an item from the journal of the run.

        Raises:
            IndexUnusable: the journal does not have them at their positions.
        """
        found = []
        try:
            with (self.folder / JOURNAL).open("rb") as file:
                for answer in item.answers:
                    file.seek(answer.offset)
                    judgment = Judgment.model_validate(json.loads(file.read(answer.size))["judgment"])
                    found.append(ReadAnswer(responses=answer.responses, judgment=judgment))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise IndexUnusable(f"{self.folder / JOURNAL}: changed since the index was written") from error
        return found

    def changes(
        self, second: RunIndex, *, kind: str, first: int, num: int, left_out: Sequence[str] = ()
    ) -> tuple[int, list[ChangedItem]]:
        """Return the number of items whose results differ in another run, and some of them. Raises IndexUnusable as `view`.

        Args:
            second: the index of the other run.
            kind: a name from `CHANGES`.
            first: number of items to skip.
            num: maximum number of items.
            left_out: ids of items that are not compared.
        """
        sql = (
            "FROM items AS a JOIN other.items AS b ON a.id = b.id "
            f"WHERE a.result IS NOT NULL AND b.result IS NOT NULL AND a.result != b.result AND {CHANGES[kind]} "
            "AND a.id NOT IN (SELECT value FROM json_each(?))"
        )
        ids = json.dumps(list(left_out))
        columns = "a.id, a.subset, a.result, b.result, a.place, b.place"
        with self._database() as database, _unusable(second.path):
            database.execute("ATTACH ? AS other", [second.uri])
            total = database.execute(f"SELECT count(*) {sql}", [ids]).fetchone()[0]
            rows = database.execute(f"SELECT {columns} {sql} ORDER BY a.place LIMIT ? OFFSET ?", [ids, num, first])
            names = [field.name for field in fields(ChangedItem)]
            return total, [ChangedItem(**dict(zip(names, row, strict=True))) for row in rows]

    @property
    def uri(self) -> str:
        """The index as a URI of SQLite, for reading."""
        return f"{self.path.resolve().as_uri()}?mode=ro"

    def _words(self, column: str) -> list[str]:
        with self._database() as database:
            found = database.execute(f"SELECT DISTINCT {column} FROM items").fetchall()
        return sorted({word for (words,) in found for word in words.split()})

    def _document(self, name: str) -> str:
        with self._database() as database:
            found = database.execute("SELECT json FROM documents WHERE name = ?", [name]).fetchone()
        if found is None:
            raise IndexUnusable(f"{self.path}: has no {name}")
        return found[0]

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        with _unusable(self.path), closing(sqlite3.connect(self.uri, uri=True)) as database:
            yield database


@contextmanager
def _unusable(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise IndexUnusable(f"{path}: {error}") from error


def _row(item: IndexedItem) -> tuple[Any, ...]:
    listed = item.listed
    texts = None
    if item.responses is not None:
        prompt = item.prompt if isinstance(item.prompt, str) else [one.model_dump() for one in item.prompt or ()]
        texts = json.dumps([prompt, item.responses])
    return (
        listed.place, listed.id, listed.subset, listed.result, listed.flipped, listed.forced, listed.abstained,
        listed.judged, listed.confidence, _joined(listed.bases), _joined(listed.errors), item.problem,
        json.dumps(item.correct), json.dumps([[one.responses, one.offset, one.size] for one in item.answers]), texts,
    )  # fmt: skip


def _joined(words: Iterable[str]) -> str:
    text = " ".join(words)
    return f" {text} " if text else ""


def _listed(row: tuple[Any, ...]) -> ListedItem:
    place, id, subset, result, flipped, forced, abstained, judged, confidence, bases, errors = row
    return ListedItem(
        place=place,
        id=id,
        subset=subset,
        result=result,
        flipped=bool(flipped),
        forced=bool(forced),
        abstained=bool(abstained),
        judged=bool(judged),
        confidence=confidence,
        bases=tuple(bases.split()),
        errors=tuple(errors.split()),
    )


def _indexed(row: tuple[Any, ...]) -> IndexedItem:
    *listed, problem, correct, answers, texts = row
    prompt, responses = (None, None) if texts is None else json.loads(texts)
    if isinstance(prompt, list):
        prompt = tuple(ChatMessage.model_validate(one) for one in prompt)
    return IndexedItem(
        listed=_listed(tuple(listed)),
        problem=problem,
        correct=tuple(json.loads(correct)),
        answers=tuple(
            AnswerPlace(responses=tuple(shown), offset=offset, size=size) for shown, offset, size in json.loads(answers)
        ),
        prompt=prompt,
        responses=None if responses is None else tuple(responses),
    )
