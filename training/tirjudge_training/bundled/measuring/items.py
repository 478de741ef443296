"""The items of all measured sets.

The held-out writer's items come from this package. All others are made of the rows of benchmarks in a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Literal

from tirjudge.types import Mode
from tirjudge_training.bundled.measuring.edits import flipped
from tirjudge_training.bundled.measuring.google import OfficialRules, checks_of, official_rules
from tirjudge_training.bundled.measuring.rows import BenchmarkRow, find_benchmark, read_benchmark
from tirjudge_training.instructions.composing import Composer
from tirjudge_training.instructions.notation import Check
from tirjudge_training.instructions.responses import response_to
from tirjudge_training.instructions.written import (
    HELD_OUT_FORM_WRITERS,
    HELD_OUT_LATEST_WRITERS,
    HELD_OUT_WRITERS,
    Written,
    written_by,
)

NUM_COMPOSED = 300
"""Number of composed pairs of the held-out writer."""

FULL_SCORE = 10
"""Lowest score that says that a response follows all instructions. A program scores 1 + 9 x the share of the checks that
the response passes, so a response that fails one of three instructions gets 7: more than half the scale, but not yes."""

SetKind = Literal["best", "follows", "silence"]
"""`best`: one of the responses is to be named. `follows`: one response, does it follow all instructions? `silence`: nothing
can be checked, so the judge should not be confident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredItem:
    """One prompt with its responses, and what is known about them."""

    id: str
    group: str
    """Part of the set that the item belongs to, such as a kind of instruction."""
    mode: Mode
    """Task of the judge."""
    prompt: str
    responses: tuple[str, ...]
    right: frozenset[int]
    """Indexes of the right responses. Of one response: {0} if it follows all instructions, else empty."""
    asked: tuple[Check, ...] | None = None
    """Checks that the prompt asks for, in the notation of programs. None: not known."""
    asked_call: str | None = None
    """The one check that the prompt asks for, if it calls a tool."""
    evidence: tuple[Mapping[str, Any], ...] = ()
    """Stores that come with the request, in the layout of `AttachedStore`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSet:
    """One set of items."""

    name: str
    title: str
    """What the items are, for the model card."""
    kind: SetKind
    """What is measured."""
    targets: Mapping[str, float]
    """Figure -> the value that it should reach."""
    draw: Callable[[Path, int], Iterator[MeasuredItem]]
    """Folder with the rows, seed -> the items. An empty iterator: the folder has no such rows."""

    def items(self, folder: Path, *, seed: int, limit: int | None) -> Iterator[MeasuredItem]:
        """Yield the items: all, or the first ones.

        Raises:
            ValueError: the rows are not valid, or a package for the official rules is not installed.
        """
        return islice(self.draw(folder, seed), limit)


# The held-out writer ------------------------------------------------------------------------------------------------------


def composed(folder: Path, seed: int) -> Iterator[MeasuredItem]:
    """Yield composed pairs of the held-out writer."""
    return composed_items(written_by(HELD_OUT_WRITERS), seed=seed, num_items=NUM_COMPOSED)


def composed_items(written: Written, *, seed: int, num_items: int) -> Iterator[MeasuredItem]:
    """Yield composed pairs of written texts, without their whole prompts."""
    composer = Composer(replace(written, prompts=()))
    rng = Random(f"composed/{seed}")
    number = 0
    while number < num_items:
        asked = composer.draw(rng, num_sentences=rng.choice((1, 1, 2, 3)))
        item = _pair(asked.text, asked.checks, sentences=composer.sentences, rng=rng, id=f"composed:{number}")
        if item is not None:
            number += 1
            yield item


def whole_prompts(folder: Path, seed: int) -> Iterator[MeasuredItem]:
    """Yield a pair for each whole prompt of the held-out writer."""
    return _whole_prompts(written_by(HELD_OUT_WRITERS), seed=seed)


def newer_forms(folder: Path, seed: int) -> Iterator[MeasuredItem]:
    """Yield pairs of the writers of newer checks: composed ones, and one for each whole prompt."""
    return _forms_by(HELD_OUT_FORM_WRITERS, seed=seed)


def latest_forms(folder: Path, seed: int) -> Iterator[MeasuredItem]:
    """Yield such pairs of the writer of the latest checks."""
    return _forms_by(HELD_OUT_LATEST_WRITERS, seed=seed)


def _forms_by(writers: tuple[str, ...], *, seed: int) -> Iterator[MeasuredItem]:
    plain, newer = written_by(HELD_OUT_WRITERS), written_by(writers)
    written = replace(newer, tasks=plain.tasks, facts=plain.facts, soft=plain.soft)
    yield from composed_items(written, seed=seed, num_items=NUM_COMPOSED)
    yield from _whole_prompts(written, seed=seed)


def _whole_prompts(written: Written, *, seed: int) -> Iterator[MeasuredItem]:
    sentences = Composer(written).sentences
    for number, one in enumerate(written.prompts):
        rng = Random(f"prompts/{seed}/{number}")
        if one.checks and (item := _pair(one.text, one.checks, sentences=sentences, rng=rng, id=f"prompt:{number}")):
            yield item


def _pair(
    prompt: str, checks: Sequence[Check], *, sentences: Sequence[str], rng: Random, id: str
) -> MeasuredItem | None:
    """Return a pair in which one response passes all checks and the other fails one; None if such a pair was not found."""
    failing = rng.randrange(len(checks))
    patterns = ([True] * len(checks), [place != failing for place in range(len(checks))])
    passed, failed = (response_to(checks, pattern, prompt=prompt, sentences=sentences, rng=rng) for pattern in patterns)
    if passed is None or failed is None:
        return None
    right = rng.randrange(2)
    return MeasuredItem(
        id=id,
        group=checks[failing].name,
        mode=Mode.PAIRWISE,
        prompt=prompt,
        responses=(failed, passed) if right else (passed, failed),
        right=frozenset({right}),
        asked=tuple(checks),
    )


# IFEval -------------------------------------------------------------------------------------------------------------------


def edited(folder: Path, seed: int) -> Iterator[MeasuredItem]:
    """Yield responses of IFEval beside edits (`edited_pair`)."""
    rows = _rows(folder, "ifeval")
    with ExitStack() as stack:
        rules = stack.enter_context(official_rules()) if rows else None
        for row in rows:
            if rules is not None and not row.instructions.nondeterministic_in_official_code:
                item = edited_pair(row, rules=rules, seed=seed)
                if item is not None:
                    yield item


def edited_pair(row: BenchmarkRow, *, rules: OfficialRules, seed: int) -> MeasuredItem | None:
    """Return a response of IFEval beside an edit of it that flips one instruction; None if no edit is found.

    Args:
        row: the row, with one response.
        rules: the official rules.
        seed: seed of the instruction, the edit and the positions.
    """
    rng = Random(f"edited/{seed}/{row.id}")
    official, kinds = rules.of(row), row.instructions.instruction_id_list
    for index in rng.sample(range(len(kinds)), len(kinds)):
        other = flipped(official, row.responses[0], index=index, rng=rng)
        if other is None:
            continue
        pair = (row.responses[0], other)
        follows = 0 if official.follows(row.responses[0], index=index) else 1
        right = rng.randrange(2)
        return MeasuredItem(
            id=f"ifeval:{row.id}",
            group=kinds[index],
            mode=Mode.PAIRWISE,
            prompt=row.prompt,
            responses=pair if right == follows else pair[::-1],
            right=frozenset({right}),
            asked=_asked(row),
        )
    return None


def _asked(row: BenchmarkRow) -> tuple[Check, ...]:
    asked = row.instructions
    pairs = zip(asked.instruction_id_list, asked.kwargs, strict=True)
    return tuple(check for kind, given in pairs for check in checks_of(kind, given))


def absolute(folder: Path, seed: int) -> Iterator[MeasuredItem]:
    """Yield single responses of IFEval."""
    for row in _rows(folder, "ifeval"):
        yield MeasuredItem(
            id=f"ifeval:{row.id}",
            group=f"{len(row.instructions.strict)} instructions",
            mode=Mode.POINTWISE,
            prompt=row.prompt,
            responses=(row.responses[0],),
            right=frozenset({0} if all(row.instructions.strict) else ()),
            asked=_asked(row),
        )


# Other benchmarks -----------------------------------------------------------------------------------------------------------


def labelled(
    name: str, group: Callable[[BenchmarkRow], str], *, without: str | None = None
) -> Callable[[Path, int], Iterator[MeasuredItem]]:
    """Return the function that draws the rows with a label of a benchmark of pairs, in a random order.

    Args:
        name: name of the benchmark.
        group: names the group of a row.
        without: subset whose rows are left out.
    """

    def draw(folder: Path, seed: int) -> Iterator[MeasuredItem]:
        for row in _shuffled(_rows(folder, name), name, seed):
            if row.label is not None and len(row.responses) == 2 and row.subset != without:
                yield _item(row, (0, 1), {row.label}, group=group(row), seed=seed)

    return draw


def best_of_four(folder: Path, seed: int) -> Iterator[MeasuredItem]:
    """Rows in which some responses are right, but not all."""
    for row in _shuffled(_rows(folder, "gsm8k"), "gsm8k", seed):
        right = {place for place, is_right in enumerate(row.meta.get("correct", ())) if is_right}
        if 0 < len(right) < len(row.responses):
            yield _item(row, range(len(row.responses)), right, group=f"{len(right)} right", seed=seed)


def same_style(folder: Path, seed: int) -> Iterator[MeasuredItem]:
    """Pairs of RM-Bench: a right and a wrong response in the same random style, without those about code."""
    for row in _shuffled(_rows(folder, "rmbench"), "rmbench", seed):
        right = set(row.meta.get("correct", ()))
        wrong = [place for place in range(len(row.responses)) if place not in right]
        if row.subset != "code" and len(right) == len(wrong):
            style = Random(f"style/{seed}/{row.id}").randrange(len(wrong))
            shown = (sorted(right)[style], wrong[style])
            yield _item(row, shown, {shown[0]}, group=row.subset, seed=seed)


def _item(row: BenchmarkRow, shown: Sequence[int], right: set[int], *, group: str, seed: int) -> MeasuredItem:
    """Return the item of a row, with the responses in a random order."""
    order = Random(f"order/{seed}/{row.id}").sample(list(shown), len(shown))
    return MeasuredItem(
        id=row.id,
        group=group,
        mode=Mode.PAIRWISE if len(order) == 2 else Mode.LISTWISE,
        prompt=row.prompt,
        responses=tuple(row.responses[place] for place in order),
        right=frozenset(place for place, index in enumerate(order) if index in right),
    )


def _rows(folder: Path, name: str) -> list[BenchmarkRow]:
    file = find_benchmark(folder, name)
    return [] if file is None else read_benchmark(file)


def _shuffled(rows: list[BenchmarkRow], name: str, seed: int) -> list[BenchmarkRow]:
    """Return the rows in a random order, so that the first ones are a sample of all parts."""
    return Random(f"rows/{name}/{seed}").sample(rows, len(rows))


def subset(row: BenchmarkRow) -> str:
    """Return the subset of a row."""
    return row.subset


def source(row: BenchmarkRow) -> str:
    """Return the subset of a row, with the source of a question of knowledge."""
    return f"{row.subset}: {row.meta.get('source', '')}" if row.subset == "knowledge" else row.subset


def section(row: BenchmarkRow) -> str:
    """Return the section of a row."""
    return str(row.meta.get("section", row.subset))
