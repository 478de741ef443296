"""The items of a recipe: read or generated, and parted into those to train on and those to measure with."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from tirjudge.types import Mode
from tirjudge_training.config import Data, MixtureSection, Recipe, Synthetic
from tirjudge_training.items import TrainingItem, read_items, validation_split
from tirjudge_training.synthetic.examples import Mixture


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """What a run trains on and what it is measured with; they share no prompt, unless the recipe names both by itself."""

    train: tuple[TrainingItem, ...]
    held_out: tuple[TrainingItem, ...]
    """Their right response is known; empty: there are no labels at all."""

    @property
    def num_prompts(self) -> int:
        """Prompts to train on; a pointwise item makes one of each response."""
        return sum(item.num_groups for item in self.train)

    @property
    def sha256(self) -> str:
        """Of both, in order."""
        digest = hashlib.sha256()
        for item in (*self.train, *self.held_out):
            digest.update(repr(item).encode())
        return digest.hexdigest()

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """ "train" and "held_out": "task/mode" -> how many."""
        sides = {"train": self.train, "held_out": self.held_out}
        return {
            name: dict(sorted(Counter(f"{item.task}/{item.mode}" for item in items).items()))
            for name, items in sides.items()
        }


def load_data(recipe: Recipe) -> TrainingData:
    """All items of a recipe. `data.tasks` says what is trained on; what is held out is of every task.

    Raises:
        ValueError: there are none, or a file cannot be read.
    """
    items = items_of(recipe.data.model_copy(update={"tasks": None}))
    if recipe.validation.data is not None:
        train, held_out = items, items_of(recipe.validation.data)
    else:
        train, held_out = validation_split(items, share=recipe.validation.share, seed=recipe.validation.seed)
    train = _of_tasks(train, recipe.data.tasks)
    if not train:
        raise ValueError(f"data: {len(items)} items given, and after validation.share none is left to train on")
    known = [item for item in held_out if item.best is not None]
    limit = recipe.validation.limit
    if limit is not None and limit < len(known):
        chosen = set(Random(recipe.validation.seed).sample(range(len(known)), limit))
        known = [item for index, item in enumerate(known) if index in chosen]
    return TrainingData(train=tuple(train), held_out=tuple(known))


def items_of(data: Data) -> list[TrainingItem]:
    """The items of one section.

    Raises:
        ValueError: there are none, a file is empty or cannot be read, or two files share an id.
    """
    items: list[TrainingItem] = []
    for file in data.items:
        items += (found := read_items(file))
        if not found:
            raise ValueError(f"data.items: {file} holds no item")
    if data.synthetic is not None:
        items += generated(data.synthetic)
    items = _of_tasks(items, data.tasks)[: data.limit]
    if not items:
        raise ValueError("data: no items; set data.items to files, or data.synthetic to counts")
    twice = [name for name, count in Counter(item.id for item in items).items() if count > 1]
    if twice:
        raise ValueError(f'data.items: id "{twice[0]}" is in more than one file; ids have to differ')
    return items


def _of_tasks(items: Sequence[TrainingItem], tasks: Sequence[str] | None) -> list[TrainingItem]:
    """Those of these tasks; None: all.

    Raises:
        ValueError: there is no item of one of them.
    """
    if tasks is None:
        return list(items)
    known = sorted({item.task for item in items})
    unknown = [task for task in tasks if task not in known]
    if unknown:
        raise ValueError(f"data.tasks: {unknown[0]} given; there are {', '.join(known) or 'none'}")
    return [item for item in items if item.task in tasks]


def generated(spec: Synthetic) -> list[TrainingItem]:
    """The generated items of a recipe, modes mixed."""
    from tirjudge_training.synthetic.items import generate_items

    counts = {Mode.POINTWISE: spec.pointwise, Mode.PAIRWISE: spec.pairwise, Mode.LISTWISE: spec.listwise}
    mixture = mixture_of(spec.mixture)
    items = [
        item
        for mode, count in counts.items()
        for item in generate_items(mode, count=count, seed=spec.seed, mixture=mixture, held_out=spec.held_out)
    ]
    Random(f"{spec.seed}/modes").shuffle(items)
    return items


def mixture_of(section: MixtureSection) -> Mixture:
    """The same as the generator takes it.

    Raises:
        ValueError: a kind of instruction that there is none of.
    """
    mixture = Mixture(**section.model_dump())
    _ = mixture.drawn_kinds
    return mixture
