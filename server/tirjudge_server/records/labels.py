"""Labels of people: what a person says about a verdict. Each label is a record of the chain.

A person may label a judgment again. The latest label of each person counts.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

from sqlalchemy import select, update

from tirjudge.types import Verdict, label_of
from tirjudge_server.records.chain import Chain, ChainEntry
from tirjudge_server.records.database import Database
from tirjudge_server.records.record import record_of
from tirjudge_server.records.schema import records
from tirjudge_server.records.sealing import load, seal

Label = Literal["agree", "other", "tie"]
"""The verdict is right, another response is best, or the responses are equally good."""

LABELS: tuple[Label, ...] = get_args(Label)

MAX_RATERS = 99
"""Maximum number of people with columns of their own in exported rows."""

MAX_NOTE_CHARS = 2_000
"""Maximum length of a note, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenLabel:
    """A label to store."""

    judgment_id: str
    label: Label
    best: int | None
    """With `other`: index of the response that is best. None: the person did not name one."""
    note: str | None
    """None: no note."""
    caller: str | None
    """Name of the person's key. None: the server has no keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLabel:
    """A label on record."""

    id: str
    created_ms: int
    """Unix time in milliseconds."""
    label: Label
    best: int | None
    """As in `GivenLabel`."""
    note: str | None
    """None: no note, or it is erased."""
    caller: str | None
    """None: the server had no keys, or the name is erased."""


def label_entry(given: GivenLabel, *, withheld: Collection[str]) -> ChainEntry:
    """Return the record of a label.

    Args:
        given: The label.
        withheld: Names of fields that are not stored.
    """
    values: dict[str, Any] = {"judgment": given.judgment_id, "label": given.label, "best": given.best}
    values |= {"caller": given.caller} | ({} if given.note is None else {"note": given.note})
    caller = None if "caller" in withheld else given.caller
    return ChainEntry(
        kind="label",
        id=f"lbl_{uuid.uuid4().hex}",
        content=seal(values, withheld=withheld),
        columns={"about": given.judgment_id, "human": given.label, "caller": caller},
    )


def append_label(chain: Chain, entry: ChainEntry) -> None:
    """Append a label to the chain, and note it at its judgment for the list."""
    chain.append(entry)
    at = update(records).where(records.c.id == entry.columns["about"], records.c.kind == "judgment")
    chain.connection.execute(at.values(human=entry.columns["human"]))


def labels_of(database: Database, *, judgment_id: str) -> list[StoredLabel]:
    """Return the labels of a judgment, newest first.

    Raises:
        RecordsUnavailable: The database cannot be read.
        ValueError: A label is damaged and cannot be read.
    """
    wanted = select(records).where(records.c.about == judgment_id, records.c.kind == "label")
    with database.reading() as connection:
        return [_stored(row) for row in connection.execute(wanted.order_by(records.c.seq.desc()))]


def _stored(row: Any) -> StoredLabel:
    values = load(row.content).values
    return StoredLabel(
        id=row.id,
        created_ms=row.created_ms,
        label=values["label"],
        best=values["best"],
        note=values.get("note"),
        caller=values.get("caller"),
    )


def labeled_rows(database: Database, *, by_person: bool = False) -> Iterator[dict[str, Any]]:
    """Yield one row for each labeled judgment, for `tirjudge bench run --data`: id, prompt, responses, and `winner`, the
    majority of the latest label of each person (a split is a tie). Judgments without texts, with one response, and labels
    that name no response are left out.

    Args:
        database: The records.
        by_person: Whether a row has the latest label of each person, as `rater_1`, `rater_2`, ..., in place of `winner`.
            The numbers follow the names of the people.

    Raises:
        RecordsUnavailable: The database cannot be read.
        ValueError: A record is damaged and cannot be read, or more than `MAX_RATERS` people gave labels.
    """
    raters = _raters(database) if by_person else {}
    wanted = select(records).where(records.c.kind == "judgment", records.c.human.is_not(None)).order_by(records.c.seq)
    with database.reading() as connection:
        for row in connection.execution_options(yield_per=200).execute(wanted):
            record = record_of(row)
            request = record.request_fields
            responses = request.get("responses") or ()
            if "prompt" not in request or len(responses) < 2:
                continue
            verdict = record.judgment.verdict
            latest: dict[str | None, StoredLabel] = {}
            for label in reversed(labels_of(database, judgment_id=record.id)):
                latest[label.caller] = label
            votes = {who: vote for who, label in latest.items() if (vote := _vote(label, verdict, len(responses)))}
            if votes:
                yield {
                    "id": record.id,
                    "prompt": request["prompt"],
                    **{f"response_{label_of(index).lower()}": text for index, text in enumerate(responses)},
                    **({name: votes.get(who) for who, name in raters.items()} or {"winner": _majority(votes.values())}),
                }


def _raters(database: Database) -> dict[str | None, str]:
    """Return the people who gave labels, with the names of their columns."""
    wanted = select(records).where(records.c.kind == "label")
    with database.reading() as connection:
        rows = connection.execution_options(yield_per=200).execute(wanted)
        people = sorted({_stored(row).caller for row in rows}, key=lambda caller: caller or "")
    if len(people) > MAX_RATERS:
        raise ValueError(f"--by-person: {len(people)} people gave labels, more than {MAX_RATERS}; leave the option out")
    return {person: f"rater_{number}" for number, person in enumerate(people, start=1)}


def _majority(votes: Collection[str]) -> str:
    counts = Counter(votes)
    most = [vote for vote, number in counts.items() if number == max(counts.values())]
    return most[0] if len(most) == 1 else "tie"


def _vote(label: StoredLabel, verdict: Verdict, num_responses: int) -> str | None:
    """Return the letter of the response that a person prefers, or `tie`. None: the label names no response."""
    agreed = verdict.status if label.label == "agree" else label.label
    if agreed == "tie":
        return "tie"
    if agreed == "decided":
        return None if verdict.best is None else label_of(verdict.best)
    if label.best is not None:
        return label_of(label.best)
    is_pair = agreed == "other" and verdict.best is not None and num_responses == 2
    return label_of(1 - verdict.best) if is_pair and verdict.best is not None else None
