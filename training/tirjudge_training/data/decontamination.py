"""Finds training texts that share eight words in a row with a benchmark.

A gram is eight consecutive words (`\\w+`, lower case), kept as a 64-bit number: the words' hashes (BLAKE2b, so the same
in every process) summed with fixed odd factors. 2 million grams of 64 bits collide with a foreign one with a
probability of about 1e-13 each. A text of fewer than eight words is one gram, so short prompts are found when they are
the same.

What a data set puts around every question is no contamination: grams that occur in many of its prompts are its template
and are passed over, as are those of a file of boilerplate.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tirjudge.types import prompt_text
from tirjudge_training.items import TrainingItem

NUM_WORDS = 8

TEMPLATE_SHARE = 0.02
"""A gram in more than this share of a data set's prompts is its template."""

MIN_TEMPLATE_PROMPTS = 5
"""And in at least so many: in a handful of rows, nothing can be told."""

Grams = npt.NDArray[np.uint64]

_WORD = re.compile(r"\w+")
_draw = np.random.Generator(np.random.PCG64(8)).integers(0, 2**63, size=NUM_WORDS, dtype=np.uint64)
_FACTORS = _draw * np.uint64(2) + np.uint64(1)


class GramMaker:
    """Makes the grams of texts; remembers the hashes of words."""

    def __init__(self) -> None:
        self._hashes: dict[str, int] = {}

    def grams(self, text: str) -> Grams:
        """The different grams of a text, sorted; shape [n]. Empty for a text without words."""
        hashes = self._hashes
        words = _WORD.findall(text.lower())
        for word in words:
            if word not in hashes:
                digest = hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest()
                hashes[word] = int.from_bytes(digest, "little")
        numbers = np.fromiter((hashes[word] for word in words), dtype=np.uint64, count=len(words))
        if len(numbers) == 0:
            return numbers
        if len(numbers) < NUM_WORDS:
            # How many they are goes in, so that a short text is no prefix of a long one's gram.
            return np.array([np.sum(numbers * _FACTORS[: len(numbers)], dtype=np.uint64) + np.uint64(len(numbers))])
        num_grams = len(numbers) - NUM_WORDS + 1
        total = np.zeros(num_grams, dtype=np.uint64)
        for place in range(NUM_WORDS):
            total += numbers[place : place + num_grams] * _FACTORS[place]
        return np.unique(total)


@dataclass(slots=True, kw_only=True)
class Index:
    """The grams of all benchmarks."""

    grams: Grams
    """Sorted; shape [n]."""
    owners: npt.NDArray[np.int32]
    """The first benchmark that has each gram, as an index into `names`; shape [n]."""
    names: tuple[str, ...]
    num_prompts: Mapping[str, int]
    """Benchmark -> prompts read."""
    maker: GramMaker = field(default_factory=GramMaker)

    @property
    def fingerprint(self) -> str:
        """The same for the same benchmarks with the same prompts."""
        digest = hashlib.sha256("\0".join(self.names).encode())
        digest.update(self.grams.tobytes())
        digest.update(self.owners.tobytes())
        return digest.hexdigest()

    def found_in(self, texts: Sequence[str], *, exempt: Grams) -> str | None:
        """The benchmark that shares a gram with one of the texts; of several the first by name. None: none does.

        Args:
            texts: each is cut into grams by itself.
            exempt: sorted grams that do not count.
        """
        if len(self.grams) == 0:
            return None
        owners: list[int] = []
        for text in texts:
            grams = self.maker.grams(text)
            places = np.minimum(np.searchsorted(self.grams, grams), len(self.grams) - 1)
            hit = self.grams[places] == grams
            if hit.any():
                hit &= ~_is_in(grams, exempt)
                owners += self.owners[places[hit]].tolist()
        return self.names[min(owners)] if owners else None

    def template_grams(self, prompts: Sequence[str]) -> Grams:
        """Grams of the index that so many of a data set's prompts have that they are its template; sorted."""
        counts: Counter[int] = Counter()
        for prompt in prompts:
            grams = self.maker.grams(prompt)
            counts.update(grams[_is_in(grams, self.grams)].tolist())
        least = max(MIN_TEMPLATE_PROMPTS, TEMPLATE_SHARE * len(prompts))
        return np.array(sorted(gram for gram, count in counts.items() if count > least), dtype=np.uint64)

    def grams_of(self, texts: Iterable[str]) -> Grams:
        """All grams of some texts, sorted."""
        parts = [self.maker.grams(text) for text in texts]
        return np.unique(np.concatenate([np.zeros(0, dtype=np.uint64), *parts]))


def index_of(benchmarks: Mapping[str, Iterable[str]]) -> Index:
    """The index of benchmarks' prompts, by the benchmarks' names."""
    names = tuple(sorted(benchmarks))
    maker = GramMaker()
    num_prompts: dict[str, int] = {}
    parts: list[Grams] = [np.zeros(0, dtype=np.uint64)]
    owners: list[npt.NDArray[np.int32]] = [np.zeros(0, dtype=np.int32)]
    for number, name in enumerate(names):
        found = [maker.grams(prompt) for prompt in benchmarks[name]]
        num_prompts[name] = len(found)
        parts += found
        owners += [np.full(len(grams), number, dtype=np.int32) for grams in found]
    # The owners stand in ascending order, and `unique` gives the first place of each gram.
    grams, first = np.unique(np.concatenate(parts), return_index=True)
    return Index(grams=grams, owners=np.concatenate(owners)[first], names=names, num_prompts=num_prompts, maker=maker)


def contaminated(
    items: Sequence[TrainingItem], *, index: Index, with_responses: bool = False, exempt: Grams | None = None
) -> dict[str, str]:
    """Id -> benchmark, for the items that share a gram with one. Each source's own template is passed over."""
    boilerplate = np.zeros(0, dtype=np.uint64) if exempt is None else exempt
    found: dict[str, str] = {}
    for source in sorted({item.source for item in items}):
        mine = [item for item in items if item.source == source]
        template = index.template_grams([prompt_text(item.prompt) for item in mine])
        passed_over = np.union1d(template, boilerplate)
        for item in mine:
            texts = [prompt_text(item.prompt), *(item.responses if with_responses else ())]
            name = index.found_in(texts, exempt=passed_over)
            if name is not None:
                found[item.id] = name
    return found


def _is_in(grams: Grams, known: Grams) -> npt.NDArray[np.bool_]:
    """Whether each gram is one of the known, which are sorted."""
    if len(known) == 0:
        return np.zeros(len(grams), dtype=np.bool_)
    return known[np.minimum(np.searchsorted(known, grams), len(known) - 1)] == grams
