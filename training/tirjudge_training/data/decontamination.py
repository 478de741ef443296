"""Finds training texts that share eight words in a row with a benchmark.

An 8-gram is eight consecutive words (`\\w+`, lower case). It is stored as a 64-bit number: the sum of the hashes of the words
(BLAKE2b, equal in every process), multiplied by fixed odd factors. With 2 million grams, the probability of a false
match is about 1e-13 per 8-gram. The words of a shorter text are stored as one 8-gram, so equal short prompts are found.

The template that a data set puts around its questions does not count as contamination. 8-grams that occur in many prompts
of a data set are its template and are ignored. 8-grams of a boilerplate file are ignored too.
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
"""Share of a data set's prompts. An 8-gram belongs to the template of the data set if it occurs in more prompts than this
share and than `MIN_TEMPLATE_PROMPTS`."""

MIN_TEMPLATE_PROMPTS = 5
"""Number of prompts; see `TEMPLATE_SHARE`."""

Grams = npt.NDArray[np.uint64]

_WORD = re.compile(r"\w+")
_draw = np.random.Generator(np.random.PCG64(8)).integers(0, 2**63, size=NUM_WORDS, dtype=np.uint64)
_FACTORS = _draw * np.uint64(2) + np.uint64(1)


class GramMaker:
    """Computes the 8-grams of texts, with a cache of word hashes."""

    def __init__(self) -> None:
        self._hashes: dict[str, int] = {}

    def grams(self, text: str) -> Grams:
        """Return the distinct 8-grams of a text, sorted; shape [n]. Empty for a text without words."""
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
            # The number of words is added, so that the number of a short text differs from a partial sum of an 8-gram.
            return np.array([np.sum(numbers * _FACTORS[: len(numbers)], dtype=np.uint64) + np.uint64(len(numbers))])
        num_grams = len(numbers) - NUM_WORDS + 1
        total = np.zeros(num_grams, dtype=np.uint64)
        for place in range(NUM_WORDS):
            total += numbers[place : place + num_grams] * _FACTORS[place]
        return np.unique(total)


@dataclass(slots=True, kw_only=True)
class Index:
    """Index of the 8-grams of all benchmarks."""

    grams: Grams
    """Sorted 8-grams; shape [n]."""
    owners: npt.NDArray[np.int32]
    """First benchmark with each 8-gram, as an index into `names`; shape [n]."""
    names: tuple[str, ...]
    """Names of the benchmarks, sorted."""
    num_prompts: Mapping[str, int]
    """Benchmark -> number of its prompts."""
    maker: GramMaker = field(default_factory=GramMaker)

    @property
    def fingerprint(self) -> str:
        """Hash of the names and the 8-grams of the benchmarks."""
        digest = hashlib.sha256("\0".join(self.names).encode())
        digest.update(self.grams.tobytes())
        digest.update(self.owners.tobytes())
        return digest.hexdigest()

    def found_in(self, texts: Sequence[str], *, exempt: Grams) -> str | None:
        """Return the first benchmark by name that shares an 8-gram with one of the texts, or None.

        Args:
            texts: Texts to check. No 8-gram extends over two texts.
            exempt: Sorted 8-grams to ignore.
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
        """Return the 8-grams of the index that are part of a data set's template, sorted."""
        counts: Counter[int] = Counter()
        for prompt in prompts:
            grams = self.maker.grams(prompt)
            counts.update(grams[_is_in(grams, self.grams)].tolist())
        least = max(MIN_TEMPLATE_PROMPTS, TEMPLATE_SHARE * len(prompts))
        return np.array(sorted(gram for gram, count in counts.items() if count > least), dtype=np.uint64)

    def grams_of(self, texts: Iterable[str]) -> Grams:
        """Return all distinct 8-grams of some texts, sorted."""
        parts = [self.maker.grams(text) for text in texts]
        return np.unique(np.concatenate([np.zeros(0, dtype=np.uint64), *parts]))


def index_of(benchmarks: Mapping[str, Iterable[str]]) -> Index:
    """Build the index for benchmarks, given as name -> prompts."""
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
    # The owners are in ascending order, and `unique` returns the first position of each 8-gram.
    grams, first = np.unique(np.concatenate(parts), return_index=True)
    return Index(grams=grams, owners=np.concatenate(owners)[first], names=names, num_prompts=num_prompts, maker=maker)


def contaminated(
    items: Sequence[TrainingItem], *, index: Index, with_responses: bool = False, exempt: Grams | None = None
) -> dict[str, str]:
    """Find the items that share an 8-gram with a benchmark. The template of each source is ignored.

    Args:
        items: Items to check.
        index: Index of the benchmarks.
        with_responses: Whether to check responses in addition to prompts.
        exempt: Sorted 8-grams to ignore. None: no 8-grams.

    Returns:
        Id of an item -> benchmark.
    """
    boilerplate = np.zeros(0, dtype=np.uint64) if exempt is None else exempt
    found: dict[str, str] = {}
    for source in sorted({item.source for item in items}):
        mine = [item for item in items if item.source == source]
        template = index.template_grams([prompt_text(item.prompt) for item in mine])
        ignored = np.union1d(template, boilerplate)
        for item in mine:
            texts = [prompt_text(item.prompt), *(item.responses if with_responses else ())]
            name = index.found_in(texts, exempt=ignored)
            if name is not None:
                found[item.id] = name
    return found


def _is_in(grams: Grams, known: Grams) -> npt.NDArray[np.bool_]:
    """Return whether each 8-gram is among the known 8-grams, which must be sorted."""
    if len(known) == 0:
        return np.zeros(len(grams), dtype=np.bool_)
    return known[np.minimum(np.searchsorted(known, grams), len(known) - 1)] == grams
