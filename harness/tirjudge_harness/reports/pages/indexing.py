"""Write the index of a run."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from tirjudge.prices import Prices
from tirjudge_harness.examples import Example
from tirjudge_harness.items import InputError
from tirjudge_harness.reports.pages.collecting import without_cycle_collection
from tirjudge_harness.reports.pages.tables import charts_of, published_tables, section_table
from tirjudge_harness.reports.run_statistics import RunStatistics
from tirjudge_harness.reports.run_table import COLUMNS, run_notes, run_sections
from tirjudge_harness.reports.scored import ScoredRun, score_run
from tirjudge_harness.reports.texts import texts_of
from tirjudge_harness.run import PlannedExample
from tirjudge_harness.run_store import JOURNAL
from tirjudge_harness.showing.items import ShownItem, items_of_run
from tirjudge_harness.statistics.rates import kind_of
from tirjudge_pages.bench.index import (
    INDEX,
    AnswerPlace,
    IndexedItem,
    ListedItem,
    RunIndex,
    run_fingerprint,
    write_index,
)
from tirjudge_pages.bench.views import RunView, SectionView

HEADLINE = "Figures"
"""Title of the section with the figures of the benchmark."""

_BEFORE_KEY, _AFTER_KEY = b'{"key":', b',"judgment":'


def index_run(
    folder: Path,
    *,
    data: Path | None = None,
    with_texts: bool = True,
    protocol: str | None = None,
    prices: Prices | None = None,
    path: Path | None = None,
) -> RunIndex:
    """Score a run and write its index.

    Args:
        folder: folder of the run, complete or not.
        data: rows of the run. None: the local file or folder that the run was given.
        with_texts: whether the index has prompts and responses. Rows on the hub are not loaded.
        protocol: as for `score_run`.
        prices: as for `run_table`.
        path: file to write. None: `INDEX` in the folder.

    Raises:
        InputError: as `score_run`; or `data` are not the rows of the run.
        StorageError: a file of the run is damaged.
        OSError: the folder is not writable, or the disk is full.
    """
    fingerprint, read_at = run_fingerprint(folder), int(time.time())
    path = path or folder / INDEX
    with without_cycle_collection():
        run = score_run(folder, protocol=protocol, with_texts=False)
        texts, no_texts = _texts(run, data=data) if with_texts else ({}, "The index was written without texts.")
        view = run_view(run, prices=prices, read_at=read_at, no_texts=no_texts)
        write_index(path, view=view, items=_items(run, texts=texts), fingerprint=fingerprint)
    return RunIndex(folder, path=path)


def run_view(run: ScoredRun, *, prices: Prices | None, read_at: int, no_texts: str) -> RunView:
    """Return what the page of a run shows.

    Args:
        run: the run.
        prices: as for `run_table`.
        read_at: Unix time in seconds at which the run was read.
        no_texts: why the index has no prompts and responses. Empty: it has them.
    """
    statistics = RunStatistics(run)
    sections, charts = run_sections(run, prices=prices, statistics=statistics), charts_of(statistics)
    headline, is_eval = sections.pop(HEADLINE, []), run.manifest.data.eval is not None
    num_asked = {plan.outline.id: len(plan.asked) for plan in run.planned}
    return RunView(
        title=run.benchmark.title,
        judge=run.manifest.judge.model,
        notes=run_notes(run),
        headline=section_table(
            "Passed rows, with 95 % intervals" if is_eval else "Accuracy by subset, with 95 % intervals",
            columns=COLUMNS,
            rows=headline,
        ),
        published=published_tables(run),
        sections=tuple(
            SectionView(
                title=title,
                table=section_table(title, columns=COLUMNS, rows=rows),
                charts=charts.get(title, ()),
            )
            for title, rows in sections.items()
        ),
        num_examples=len(run.examples),
        num_judged=sum(len(one.judgments) == num_asked[one.outline.id] for one in run.examples),
        num_failures=run.num_failures,
        read_at=read_at,
        no_texts=no_texts,
        is_eval=is_eval,
    )


def _texts(run: ScoredRun, *, data: Path | None) -> tuple[Mapping[str, Example], str]:
    """Return the examples by id, or why they are not there."""
    if data is None and run.manifest.data.path is None and run.manifest.data.eval is None:
        why = "rows on the hub are not loaded for pages; `tirjudge bench index RUN --data FILE` reads them from a file"
        return {}, f"Prompts and responses are not shown: {why}."
    try:
        found = texts_of(run, data=data)
    except InputError as error:
        if data is not None:
            raise
        return {}, f"Prompts and responses are not shown: {error}"
    return found, "" if found else "Prompts and responses are not shown: texts of an attack are not stored."


def _items(run: ScoredRun, *, texts: Mapping[str, Example]) -> Iterator[IndexedItem]:
    places = journal_places(run.path)
    plans = {plan.outline.id: plan for plan in run.planned}
    problems = {failure.key: failure.error for failure in run.failures}
    bases: dict[str, dict[str, None]] = defaultdict(dict)
    for mark in run.marks:
        if mark.basis is not None:
            bases[mark.outline.id][mark.basis] = None
    for place, shown in enumerate(items_of_run(run, texts=texts)):
        plan = plans[shown.id]
        yield IndexedItem(
            listed=_listed(shown, place=place, num_asked=len(plan.asked), bases=tuple(bases[shown.id])),
            problem=next((problems[one.key] for one in plan.asked if one.key in problems), None),
            correct=() if run.manifest.data.eval is not None else shown.correct,
            answers=_answers(plan, places),
            prompt=shown.prompt,
            responses=shown.responses,
        )


def _listed(shown: ShownItem, *, place: int, num_asked: int, bases: tuple[str, ...]) -> ListedItem:
    verdicts = [one.judgment.verdict for one in shown.judgments]
    turns = [turn for one in shown.judgments for rollout in one.judgment.rollouts for turn in rollout.turns]
    return ListedItem(
        place=place,
        id=shown.id,
        subset=shown.subset or "",
        result=shown.result,
        flipped=shown.flipped,
        forced=shown.forced,
        abstained=any(verdict.status == "abstained" for verdict in verdicts),
        judged=len(shown.judgments) == num_asked,
        confidence=max((verdict.confidence for verdict in verdicts if verdict.confidence is not None), default=None),
        bases=bases,
        errors=tuple(sorted({kind.value for turn in turns if (kind := kind_of(turn)) is not None})),
    )


def _answers(plan: PlannedExample, places: Mapping[str, tuple[int, int]]) -> tuple[AnswerPlace, ...]:
    found = [(asked.responses, places.get(asked.key)) for asked in plan.asked]
    return tuple(
        AnswerPlace(responses=responses, offset=place[0], size=place[1])
        for responses, place in found
        if place is not None
    )


def journal_places(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the position and length in bytes of each judgment in the journal of a run, by the key of the request. The last
    line of a key counts. A line without its end is left out."""
    places: dict[str, tuple[int, int]] = {}
    offset = 0
    if not (folder / JOURNAL).exists():
        return places
    with (folder / JOURNAL).open("rb") as file:
        for line in file:
            # In JSON text, a quotation mark inside of the key is escaped, so that the first match ends the key.
            if line.endswith(b"\n") and line.startswith(_BEFORE_KEY) and (end := line.find(_AFTER_KEY)) > 0:
                places[json.loads(line[len(_BEFORE_KEY) : end])] = (offset, len(line))
            offset += len(line)
    return places
