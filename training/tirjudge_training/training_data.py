"""The items of a recipe: read or generated, and split into training items and held-out items."""

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
    """Training items and held-out items. They share no prompt, unless the recipe sets `validation.data`."""

    train: tuple[TrainingItem, ...]
    held_out: tuple[TrainingItem, ...]
    """Held-out items with known labels. Empty: no label is known."""

    @property
    def num_prompts(self) -> int:
        """Number of prompts to train on. A pointwise item has one prompt per response."""
        return sum(item.num_groups for item in self.train)

    @property
    def sha256(self) -> str:
        """Hash of the training items and the held-out items, in order."""
        digest = hashlib.sha256()
        for item in (*self.train, *self.held_out):
            digest.update(repr(item).encode())
        return digest.hexdigest()

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Return the number of items: "train" and "held_out" -> "task/mode" -> count."""
        sides = {"train": self.train, "held_out": self.held_out}
        return {
            name: dict(sorted(Counter(f"{item.task}/{item.mode}" for item in items).items()))
            for name, items in sides.items()
        }


def load_data(recipe: Recipe) -> TrainingData:
    """Load all items of a recipe. `data.tasks` restricts the training items; the held-out items are of all tasks.

    Raises:
        ValueError: no items given, or a file cannot be read.
    """
    items = items_of(recipe.data.model_copy(update={"tasks": None}))
    if recipe.validation.data is not None:
        train, held_out = items, items_of(recipe.validation.data)
    else:
        train, held_out = validation_split(items, share=recipe.validation.share, seed=recipe.validation.seed)
    train = _of_tasks(train, recipe.data.tasks)
    if not train:
        raise ValueError(
            f"data: none of the {len(items)} items is left for training; give more items, or a smaller validation.share"
        )
    known = [item for item in held_out if item.best is not None]
    limit = recipe.validation.limit
    if limit is not None and limit < len(known):
        chosen = set(Random(recipe.validation.seed).sample(range(len(known)), limit))
        known = [item for index, item in enumerate(known) if index in chosen]
    return TrainingData(train=tuple(train), held_out=tuple(known))


def items_of(data: Data) -> list[TrainingItem]:
    """Load the items of one section.

    Raises:
        ValueError: no items given, a file is empty or cannot be read, or two files contain the same id.
    """
    items: list[TrainingItem] = []
    for file in data.items:
        items += (found := read_items(file))
        if not found:
            raise ValueError(f"data.items: {file} contains no items")
    if data.synthetic is not None:
        items += generated(data.synthetic)
    items = _of_tasks(items, data.tasks)[: data.limit]
    if not items:
        raise ValueError("data: no items; set data.items to files, or data.synthetic to counts")
    twice = [name for name, count in Counter(item.id for item in items).items() if count > 1]
    if twice:
        raise ValueError(f'data.items: id "{twice[0]}" is in more than one file; ids must be unique')
    return items


def _of_tasks(items: Sequence[TrainingItem], tasks: Sequence[str] | None) -> list[TrainingItem]:
    """Return the items of the given tasks; None: all items.

    Raises:
        ValueError: a task has no items.
    """
    if tasks is None:
        return list(items)
    known = sorted({item.task for item in items})
    unknown = [task for task in tasks if task not in known]
    if unknown:
        raise ValueError(f"data.tasks: no items of task {unknown[0]}; the tasks are {', '.join(known) or 'none'}")
    return [item for item in items if item.task in tasks]


def generated(spec: Synthetic) -> list[TrainingItem]:
    """Generate the synthetic items of a recipe, with the modes in random order."""
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
    """Return the mixture of the generator for a section of a recipe.

    Raises:
        ValueError: `kinds` contains an unknown name.
    """
    mixture = Mixture(**section.model_dump())
    _ = mixture.drawn_kinds
    return mixture
