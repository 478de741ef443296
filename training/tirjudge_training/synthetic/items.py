"""Synthetic training items: prompts and responses with the known best response, without a judgment to learn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from pydantic import TypeAdapter

from tirjudge.types import AttachedStore, Mode
from tirjudge_evidence.tasks.generating import FUNCTIONS
from tirjudge_training.items import TrainingItem
from tirjudge_training.synthetic.examples import Mixture, draw_examples

SOURCE = "tirjudge-synthetic"

INSTRUCTIONS, MATH, CONDUCT, EVIDENCE, WRITTEN = "instructions", "math", "conduct", "evidence", "written"
"""Names of the tasks. A program cannot decide items of the task `conduct`. Items of the task `evidence` carry stores. Items
of the task `written` have instructions as people type them."""

_STORES = TypeAdapter(tuple[AttachedStore, ...])


def generate_items(
    mode: Mode, *, count: int, seed: int, mixture: Mixture, held_out: bool = False
) -> list[TrainingItem]:
    """Generate items of one mode, each with exactly one best response, in random order.

    Args:
        mode: Mode of the items. A pointwise item is a pair whose responses are scored separately.
        count: Number of items.
        seed: Seed; the same seed generates the same items.
        mixture: Shares of the tasks. `toolless`, `ties` and `long_lists` are ignored.
        held_out: Whether to use the phrasings, words and topics that training never sees.
    """
    counts = {MATH: round(count * mixture.numeric), CONDUCT: round(count * mixture.conduct)}
    if mode is not Mode.LISTWISE and mixture.evidence:
        counts[EVIDENCE] = round(count * mixture.evidence)
    if mixture.written:
        counts[WRITTEN] = round(count * mixture.written)
    counts = {INSTRUCTIONS: count - sum(counts.values()), **counts}
    items = [
        item
        for task, num in counts.items()
        for item in _items_of_task(task, mode, count=num, seed=seed, mixture=mixture, held_out=held_out)
    ]
    Random(f"{seed}/{mode}/order").shuffle(items)
    return items


def _items_of_task(
    task: str, mode: Mode, *, count: int, seed: int, mixture: Mixture, held_out: bool
) -> Iterator[TrainingItem]:
    alone = replace(
        mixture, numeric=float(task == MATH), conduct=float(task == CONDUCT), evidence=float(task == EVIDENCE),
        written=float(task == WRITTEN), toolless=0.0, ties=0.0, long_lists=0.0,
    )  # fmt: skip
    name = f"{'held-out' if held_out else 'train'}-{seed}-{mode}-{task}"
    rng = Random(f"items/{name}")
    drawn_mode = Mode.PAIRWISE if mode is Mode.POINTWISE else mode
    every = draw_examples(drawn_mode, rng=rng, held_out=held_out, mixture=alone)
    drawn = (one for one in every if one.has_one_best and bool(one.evidence) is (task == EVIDENCE))
    for number in range(count):
        example = next(drawn)
        order = list(range(len(example.responses)))
        rng.shuffle(order)
        yield TrainingItem(
            id=f"{name}-{number:06d}",
            mode=mode,
            prompt=example.prompt,
            responses=example.responses,
            best=example.label,
            task=task,
            source=SOURCE,
            verifiable=example.verifiable,
            order=tuple(order),
            evidence=_STORES.validate_python(example.evidence),
            functions=FUNCTIONS if example.evidence else None,
        )
