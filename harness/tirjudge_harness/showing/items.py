"""The items of a run, or of the output of `tirjudge judge`, with their texts, judgments and results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tirjudge.http.protocol import JudgmentRecord
from tirjudge.right import choices_by_order, decisions_of, differ, is_flipped
from tirjudge.types import ChatMessage, Judgment, label_of
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import Example
from tirjudge_harness.item_files import read_item_file
from tirjudge_harness.items import InputError, JudgeItem, JudgeSettings, numbered_lines
from tirjudge_harness.output import COLUMNS_KEY, OutputRecord, read_output
from tirjudge_harness.own_data.mapping import ColumnMapping
from tirjudge_harness.own_data.rows import RATING, ROW
from tirjudge_harness.reports.scored import ScoredRun, run_folders, score_run
from tirjudge_harness.reports.texts import texts_of

RESULTS = ("wrong", "none", "tie", "right")
"""Results of a comparison, worst first. An item has the worst result of its comparisons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedJudgment:
    """A judgment about some responses of an item."""

    responses: tuple[int, ...]
    """Indexes of the responses, in the order of the request."""
    judgment: Judgment


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownItem:
    """One item with everything that is known about it."""

    id: str
    judgments: tuple[AskedJudgment, ...]
    """Empty: the item was not judged."""
    prompt: str | tuple[ChatMessage, ...] | None = None
    """None: the texts are not known."""
    responses: tuple[str, ...] | None = None
    """None: the texts are not known."""
    subset: str | None = None
    row: int | None = None
    """Number of the row in the user's file. None: not known."""
    correct: tuple[int, ...] = ()
    """Indexes of the right responses. Empty: no label, a tie, or a rating."""
    rating: float | None = None
    """Rating of the response. None: none."""
    result: str | None = None
    """`right`, `wrong`, `tie` or `none` (no verdict). None: not scored."""
    forced: bool = False
    """Whether a verdict was forced."""
    flipped: bool = False
    """Whether two orders of the same responses lead to different responses."""
    error: str | None = None
    """Error of a failed item. None: no error."""
    record: JudgmentRecord | None = None
    """Record of a server. None: the item is from a run or an output file."""

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON data."""
        prompt = self.prompt if isinstance(self.prompt, str) or self.prompt is None else list(self.prompt)
        if isinstance(prompt, list):
            prompt = [message.model_dump() for message in prompt]
        return {
            "id": self.id,
            "subset": self.subset,
            "row": self.row,
            "prompt": prompt,
            "responses": None if self.responses is None else list(self.responses),
            "right": [label_of(index) for index in self.correct],
            "rating": self.rating,
            "result": self.result,
            "forced": self.forced,
            "flipped": self.flipped,
            "error": self.error,
            "judgments": [
                {"responses": list(one.responses), "judgment": one.judgment.model_dump(mode="json")}
                for one in self.judgments
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFilter:
    """Conditions on the items to show. An item must meet all of them."""

    wrong: bool = False
    forced: bool = False
    flipped: bool = False
    ids: tuple[str, ...] = ()
    """Ids to show. Empty: all."""
    subset: str | None = None

    def of(self, items: Sequence[ShownItem], *, source: Path) -> list[ShownItem]:
        """Return the items that meet the conditions.

        Raises:
            InputError: an id or a subset does not exist, or no item has a label and `wrong` is given.
        """
        known = {one.id for one in items}
        if missing := [id for id in self.ids if id not in known]:
            raise InputError(
                f"--id: {source} has no item {missing[0]!r}; an id looks like {next(iter(known), '')!r} (the "
                "column of --id-column, or a hash of the texts)"
            )
        subsets = sorted({one.subset for one in items if one.subset})
        if self.subset is not None and self.subset not in subsets:
            raise InputError(
                f"--subset: {source} has no subset {self.subset!r}; choose {', '.join(subsets) or 'no subset'}"
            )
        if self.wrong and all(one.result is None for one in items):
            raise InputError(f"--wrong: no item of {source} has a label, so none is wrong; leave --wrong out")
        return [
            one
            for one in items
            if (one.result == "wrong" or not self.wrong)
            and (one.forced or not self.forced)
            and (one.flipped or not self.flipped)
            and (not self.ids or one.id in self.ids)
            and (self.subset is None or one.subset == self.subset)
        ]

    def scored_of(self, items: Sequence[ShownItem], *, source: Path) -> str:
        """Return the end of the message that no item is left: the number of scored items. Empty without `wrong`."""
        if not self.wrong:
            return ""
        num = sum(one.result is not None for one in replace(self, wrong=False).of(items, source=source))
        return f": 0 of {num} scored items are wrong"


def read_items(path: Path, *, data: Path | None, with_texts: bool = True) -> list[ShownItem]:
    """Read the items of a run folder, or of an output file of `tirjudge judge`.

    Args:
        path: the folder or file.
        data: the rows of the run, or the input of the output file. None: the data that the manifest names; an output file
            then has no texts.
        with_texts: whether to read prompts and responses.

    Raises:
        InputError: neither a run nor an output file; several runs; or the data differ from those of the run.
    """
    if path.is_dir():
        found = run_folders([path])
        if len(found) > 1:
            raise InputError(f"{path} contains {len(found)} runs; give one, such as {found[0]}")
        run = score_run(found[0])
        return list(items_of_run(run, texts=texts_of(run, data=data) if with_texts else {}))
    if not path.is_file():
        raise InputError(
            f"{path}: no such file or folder; give the folder of a run, or an output file of `tirjudge judge`"
        )
    return _of_output(path, data=data if with_texts else None)


def items_of_run(run: ScoredRun, *, texts: Mapping[str, Example]) -> Iterator[ShownItem]:
    """Yield the items of a run, in its order. `texts`: the examples with texts, by id."""
    results: dict[str, set[str]] = defaultdict(set)
    for mark in run.marks:
        results[mark.outline.id].add(mark.result)
    asked = {plan.outline.id: plan.asked for plan in run.planned}
    for one in run.examples:
        yield _of_example(one, asked=asked, results=results, text=texts.get(one.outline.id))


def _of_example(
    one: JudgedExample, *, asked: Mapping[str, Any], results: Mapping[str, set[str]], text: Any
) -> ShownItem:
    outline = one.outline
    named = [tuple(question.responses) for question in asked[outline.id]]
    found = results.get(outline.id, set())
    return ShownItem(
        id=outline.id,
        judgments=tuple(
            AskedJudgment(responses=responses, judgment=judgment)
            for responses, judgment in zip(named, one.judgments, strict=False)
        ),
        prompt=None if text is None else text.prompt,
        responses=None if text is None else text.responses,
        subset=outline.subset or None,
        row=outline.facts.get(ROW),
        correct=outline.correct,
        rating=outline.facts.get(RATING),
        result=next((result for result in RESULTS if result in found), None),
        forced=any(decision.forced for decision in one.decisions),
        flipped=any(differ(choices_by_order(one.decisions, compared)) for compared in set(named)),
    )


def _of_output(path: Path, *, data: Path | None) -> list[ShownItem]:
    first = next((line for _, line in numbered_lines(path)), b"{")
    if not first.lstrip().startswith(b"{"):
        raise InputError(
            f"{path}: not a run and not an output of `tirjudge judge`; give the folder of a run, or judge the file first: "
            "tirjudge judge FILE --out OUTPUT.jsonl"
        )
    records = read_output(path)
    if not records:
        raise InputError(f"{path}: no line; give an output file of `tirjudge judge`")
    texts: dict[Any, JudgeItem] = {}
    if data is not None:
        columns = records[0].configuration.get(COLUMNS_KEY)
        mapping = None if columns is None else ColumnMapping.model_validate(columns)
        read = read_item_file(data, settings=JudgeSettings(), columns=mapping)
        texts = {task.item.id: task.item for task in read.tasks}
    shown = []
    for record in records:
        item = texts.get(record.id)
        if data is not None and (item is None or item.sha256 != record.item_sha256):
            raise InputError(f"--data: {data} has no item {record.id!r} with the texts that were judged")
        shown.append(_of_record(record, item=item))
    return shown


def _of_record(record: OutputRecord, *, item: JudgeItem | None) -> ShownItem:
    judgment = record.judgment
    prompt = None if item is None else item.prompt
    known = {
        "id": str(record.id),
        "prompt": prompt if isinstance(prompt, str) or prompt is None else tuple(prompt),
        "responses": None if item is None else tuple(item.responses),
        "correct": () if record.label is None else (record.label,),
        "error": record.error,
    }
    if judgment is None:
        return ShownItem(**known, judgments=())
    return item_of(judgment, **known, result=_result(record, judgment))


def item_of(judgment: Judgment, **fields: Any) -> ShownItem:
    """Return the item of one judgment. `fields`: the other fields of the item."""
    shown = tuple(judgment.judged)
    decisions = decisions_of(judgment, asked=shown)
    return ShownItem(
        judgments=(AskedJudgment(responses=shown, judgment=judgment),),
        forced=any(decision.forced for decision in decisions),
        flipped=is_flipped(judgment),
        **fields,
    )


def _result(record: OutputRecord, judgment: Judgment) -> str | None:
    if record.correct is None:
        return None
    if judgment.verdict.status == "abstained":
        return "none"
    if judgment.verdict.status == "tie":
        return "tie"
    return {0.0: "wrong", 1.0: "right"}.get(record.correct, "tie")
