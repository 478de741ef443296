"""Collects the items of one source: reads its rows, rejects unsuitable ones, checks answers, and draws items."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from tirjudge.types import prompt_text
from tirjudge_sandbox import SandboxPool
from tirjudge_training.data.answers import open_checking_pool
from tirjudge_training.data.checking import checked, needs_check
from tirjudge_training.data.decontamination import Grams, Index
from tirjudge_training.data.loading import PartRows, in_seeded_order
from tirjudge_training.data.mixture import MixtureQuota
from tirjudge_training.data.problems import (
    CandidateAnswer,
    TrainingProblem,
    item_of,
    possible_modes,
    sides_of,
    with_candidates,
)
from tirjudge_training.data.quality import Reason, Rejected, prompt_key
from tirjudge_training.data.sources import Source
from tirjudge_training.items import TrainingItem

TEMPLATE_SAMPLE = 2000
"""Number of rows of a part that are searched for its template."""

CHUNK = 64
"""Number of problems that are checked concurrently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """The benchmarks that rows are compared with."""

    index: Index
    """The 8-grams of the benchmarks' prompts."""
    boilerplate: Grams = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    """Sorted 8-grams that are not compared with the benchmarks."""
    with_responses: bool = False
    """Whether candidates are compared in addition to prompts."""


@dataclass(kw_only=True)
class CollectionStats:
    """Counts for the rows of a source; the fields are fields of `SourceManifest`."""

    num_rows: int = 0
    """Number of all rows."""
    num_seen: int = 0
    """Number of rows that were read before the source had enough items."""
    num_template_grams: int = 0
    """Number of benchmark 8-grams that were ignored as part of the data set's template."""
    rejected: Counter[Reason] = field(default_factory=Counter)
    """Reason -> number of rejected rows."""
    contaminated_by: Counter[str] = field(default_factory=Counter)
    """Benchmark -> number of rows that share an 8-gram with it. A row counts for the first benchmark by name."""
    examples: dict[Reason, str] = field(default_factory=dict)
    """Reason -> details on the first rejected row that has details."""

    def reject(self, rejected: Rejected) -> None:
        """Count a rejected row."""
        self.rejected[rejected.reason] += 1
        if rejected.detail:
            self.examples.setdefault(rejected.reason, rejected.detail[:200])


OpenPool = Callable[[], Awaitable[SandboxPool]]


@asynccontextmanager
async def lazy_pool(*, slots: int | None = None) -> AsyncIterator[OpenPool]:
    """Yield a function that returns a sandbox. The sandbox is opened on the first call."""
    async with AsyncExitStack() as stack:
        opened: list[SandboxPool] = []

        async def get() -> SandboxPool:
            if not opened:
                opened.append(await stack.enter_async_context(open_checking_pool(slots=slots)))
            return opened[0]

        yield get


def sound_problems(
    source: Source, parts: Sequence[PartRows], *, seed: int, screen: Screen, known: set[str], tally: CollectionStats
) -> Iterator[TrainingProblem]:
    """Yield the problems of a source in random order, without broken rows, duplicates and contaminated rows.

    Args:
        source: The source.
        parts: Its rows.
        seed: Seed of the order.
        screen: Benchmarks to compare with.
        known: Keys of known prompts. Keys of new prompts are added.
        tally: Counts of the source, updated for each row.
    """
    places = in_seeded_order(parts, seed=seed, name=source.name)
    tally.num_rows = len(places)
    templates = [
        _template(source, part, rows=[row for number, row in places if number == of_part], screen=screen)
        for of_part, part in enumerate(parts)
    ]
    tally.num_template_grams = sum(map(len, templates))
    exempt = [np.union1d(template, screen.boilerplate) for template in templates]
    for number, row in places:
        tally.num_seen += 1
        problem = source.problem(parts[number][row], part=parts[number].part)
        if isinstance(problem, Rejected):
            tally.reject(problem)
            continue
        key = prompt_key(problem.prompt)
        if key in known:
            tally.reject(Rejected(reason=Reason.DUPLICATE))
            continue
        known.add(key)
        texts = [prompt_text(problem.prompt)]
        if screen.with_responses:
            texts += [candidate.text for candidate in problem.candidates]
        benchmark = screen.index.found_in(texts, exempt=exempt[number])
        if benchmark is not None:
            tally.reject(Rejected(reason=Reason.CONTAMINATED, detail=f"{benchmark}: {texts[0][:120]!r}"))
            tally.contaminated_by[benchmark] += 1
            continue
        yield problem


def _template(source: Source, part: PartRows, *, rows: Sequence[int], screen: Screen) -> Grams:
    problems = (source.problem(part[row], part=part.part) for row in rows[:TEMPLATE_SAMPLE])
    return screen.index.template_grams(
        [prompt_text(problem.prompt) for problem in problems if isinstance(problem, TrainingProblem)]
    )


async def collect(
    source: Source,
    parts: Sequence[PartRows],
    *,
    quota: MixtureQuota,
    candidates: Mapping[tuple[str, str], Sequence[CandidateAnswer]],
    seed: int,
    screen: Screen,
    known: set[str],
    max_chars: int,
    pool: OpenPool,
    on_seen: Callable[[CollectionStats], None] = lambda tally: None,
) -> tuple[list[TrainingItem], CollectionStats]:
    """Collect the items of a source until its quota is filled or all rows are used.

    Args:
        source: The source.
        parts: Its rows.
        quota: Remaining number of items of each mode. Updated with each collected item.
        candidates: (source, problem) -> sampled answers.
        seed: Seed of the order of rows, of the candidates drawn, and of the order shown.
        screen: Benchmarks to compare with.
        known: Keys of prompts of earlier sources. Keys of new prompts are added.
        max_chars: Maximum length of a prompt with its responses, in characters.
        pool: Function that returns the sandbox for checking candidates.
        on_seen: Called with the counts after each chunk of problems.

    Returns:
        The items, and the counts.

    Raises:
        SandboxUnavailable: candidates cannot be checked.
    """
    tally, items = CollectionStats(), list[TrainingItem]()
    problems = sound_problems(source, parts, seed=seed, screen=screen, known=known, tally=tally)
    answered = (with_candidates(one, candidates.get((source.name, one.id), ())) for one in problems)
    while not quota.is_filled and (chunk := list(islice(answered, CHUNK))):
        for problem in await checked(chunk, pool=await pool()) if any(map(needs_check, chunk)) else chunk:
            if quota.is_filled:
                break
            item = _item(problem, quota=quota, seed=seed, max_chars=max_chars)
            if isinstance(item, TrainingItem):
                items.append(item)
                quota.count(item.mode)
            elif item is not None:
                tally.reject(item)
        on_seen(tally)
    return items, tally


def _item(
    problem: TrainingProblem | Rejected, *, quota: MixtureQuota, seed: int, max_chars: int
) -> TrainingItem | Rejected | None:
    """Return an item in the mode that is needed most; None if the problem fits no mode that is needed."""
    if isinstance(problem, Rejected):
        return problem
    if isinstance(sides := sides_of(problem), Rejected):
        return sides
    mode = quota.mode_for(possible_modes(problem))
    return None if mode is None else item_of(problem, mode=mode, seed=seed, max_chars=max_chars)
