"""Builds a folder of training data, one source after the other. Finished sources are kept if the build is interrupted.

OUT/parts/SOURCE.parquet, SOURCE.json   the items of a source; its settings and counts
OUT/train.parquet, validation.parquet   all items, shuffled; 5 % of each task held out
OUT/manifest.json                       settings and counts of all sources
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from tirjudge.counted import counted
from tirjudge.durable import write_file
from tirjudge.types import Mode
from tirjudge_training.data.collecting import CollectionStats, OpenPool, Screen, collect, lazy_pool, sound_problems
from tirjudge_training.data.loading import PartRows, load, local_files
from tirjudge_training.data.manifest import (
    MANIFEST,
    TRAIN,
    VALIDATION,
    MixtureManifest,
    PartManifest,
    SourceManifest,
    described,
)
from tirjudge_training.data.mixture import MixtureQuota, chosen_sources, wanted_of
from tirjudge_training.data.problems import CandidateAnswer, TrainingProblem
from tirjudge_training.data.quality import MAX_CHARS, Reason, prompt_key
from tirjudge_training.data.sources import SOURCES, Source
from tirjudge_training.items import TrainingItem, read_items, validation_split, write_items

FORMAT = 1
"""Version of the conversion from rows to items. If it is increased, finished sources are built again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Settings of the mixture to build."""

    sources: tuple[str, ...] = ()
    """Names of sources. Empty: all."""
    only: tuple[str, ...] = ()
    """Tasks to include. Empty: all."""
    commercial: bool = False
    """Whether to exclude sources whose license forbids commercial use."""
    scale: float = 1.0
    """Share of the counts of Table 6."""
    seed: int = 0
    """Seed of all random draws."""
    max_chars: int = MAX_CHARS
    """Maximum length of a prompt with its responses, in characters."""


class Finished(BaseModel):
    """Record of a finished source."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    """Hash of everything that determines its items."""
    manifest: SourceManifest


OnProgress = Callable[[str, SourceManifest, bool], None]
"""Arguments: name of a source, its manifest so far, whether the source was finished by an earlier run."""


async def build(
    wanted: Wanted,
    *,
    out: Path,
    local: Path | None,
    screen: Screen,
    candidates: Mapping[tuple[str, str], Sequence[CandidateAnswer]],
    slots: int | None = None,
    on_progress: OnProgress = lambda source, found, was_kept: None,
) -> MixtureManifest:
    """Build the folder. An interrupted build resumes with the first unfinished source.

    Args:
        wanted: Settings of the mixture.
        out: Output folder.
        local: Folder with rows, one file or folder per source. None: the hub.
        screen: Benchmarks whose prompts must not be in the data.
        candidates: (source, problem) -> sampled answers.
        slots: Maximum number of concurrent programs. None: one per core.
        on_progress: Called after each chunk of rows.

    Returns:
        Content of manifest.json.

    Raises:
        ValueError: rows cannot be read, a column is missing, or no row yields an item.
        SandboxUnavailable: candidates cannot be checked.
    """
    sources = chosen_sources(wanted.sources, only=wanted.only, commercial=wanted.commercial)
    items: list[TrainingItem] = []
    manifests: dict[str, SourceManifest] = {}
    known: set[str] = set()
    key = _common_key(wanted, screen=screen)
    async with lazy_pool(slots=slots) as pool:
        for source in sources:
            # The items of a source depend on the prompts of earlier sources, so each key includes the previous key.
            key = _key(source, after=key, wanted=wanted, local=local, candidates=candidates)
            found = _kept(source, key=key, out=out)
            if found is None:
                found = await _made(
                    source, key=key, wanted=wanted, out=out, local=local, screen=screen, candidates=candidates,
                    known=set(known), pool=pool, on_progress=on_progress,
                )  # fmt: skip
            else:
                on_progress(source.name, found[1], True)
            known |= {prompt_key(item.prompt) for item in found[0]}
            items += found[0]
            manifests[source.name] = found[1]
    if not items:
        reasons = sum((Counter(one.rejected) for one in manifests.values()), Counter[Reason]())
        listed = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common()) or "no rows"
        raise ValueError(f"no row yields an item: {listed}")
    return _finish(items, manifests, wanted=wanted, screen=screen, out=out)


def _finish(
    items: Sequence[TrainingItem], manifests: Mapping[str, SourceManifest], *, wanted: Wanted, screen: Screen, out: Path
) -> MixtureManifest:
    shuffled = list(items)
    random.Random(f"{wanted.seed}/order").shuffle(shuffled)
    train, validation = validation_split(shuffled, seed=wanted.seed)
    write_items(train, out / TRAIN)
    write_items(validation, out / VALIDATION)
    left_out = {
        source.name: Reason.NON_COMMERCIAL
        for source in SOURCES.values()
        if wanted.commercial and not source.commercial and (not wanted.sources or source.name in wanted.sources)
    }
    generators = Counter(name for item in items for name in item.generator.split(", ") if name)
    manifest = MixtureManifest(
        version=version("tirjudge"), seed=wanted.seed, scale=wanted.scale, commercial=wanted.commercial,
        only=list(wanted.only), max_chars=wanted.max_chars, sources=dict(manifests), left_out=left_out,
        benchmarks=dict(screen.index.num_prompts), with_responses=screen.with_responses,
        generators=dict(sorted(generators.items())), files={TRAIN: described(train), VALIDATION: described(validation)},
    )  # fmt: skip
    write_file(out / MANIFEST, manifest.model_dump_json(indent=1) + "\n", closed=False)
    return manifest


async def _made(
    source: Source,
    *,
    key: str,
    wanted: Wanted,
    out: Path,
    local: Path | None,
    screen: Screen,
    candidates: Mapping[tuple[str, str], Sequence[CandidateAnswer]],
    known: set[str],
    pool: OpenPool,
    on_progress: OnProgress,
) -> tuple[list[TrainingItem], SourceManifest]:
    """Collect the items of a source, and write them to its files."""
    counts = wanted_of(source, scale=wanted.scale)
    quota = MixtureQuota(counts)
    parts = load(source, local=local)

    def seen(tally: CollectionStats) -> None:
        on_progress(source.name, _manifest(source, parts, counts=counts, quota=quota, tally=tally), False)

    items, tally = await collect(
        source, parts, quota=quota, candidates=candidates, seed=wanted.seed, screen=screen, known=known,
        max_chars=wanted.max_chars, pool=pool, on_seen=seen,
    )  # fmt: skip
    manifest = _manifest(source, parts, counts=counts, quota=quota, tally=tally)
    file = out / "parts" / f"{source.name}.parquet"
    write_items(items, file)
    finished = Finished(key=key, manifest=manifest).model_dump_json(indent=1) + "\n"
    write_file(file.with_suffix(".json"), finished, closed=False)
    return items, manifest


def _kept(source: Source, *, key: str, out: Path) -> tuple[list[TrainingItem], SourceManifest] | None:
    """Return the items of a source from an earlier run; None if the run has no such items, or if the settings differ."""
    file = out / "parts" / f"{source.name}.json"
    if not file.is_file():
        return None
    try:
        finished = Finished.model_validate_json(file.read_bytes())
    except ValidationError:
        return None
    return (read_items(file.with_suffix(".parquet")), finished.manifest) if finished.key == key else None


def _manifest(
    source: Source,
    parts: Sequence[PartRows],
    *,
    counts: Mapping[Mode, int],
    quota: MixtureQuota,
    tally: CollectionStats,
) -> SourceManifest:
    manifests = [
        PartManifest(
            name=rows.part.name, hub=rows.part.hub, config=rows.part.config, split=rows.part.split,
            revision=rows.part.revision, pinned=rows.part.is_pinned,
            places=[f"{table.place} ({counted(len(table.rows), 'row')})" for table in rows.tables],
        )
        for rows in parts
    ]  # fmt: skip
    found: dict[str, Any] = {
        name: dict(sorted(of.items())) if isinstance(of, dict) else of for name, of in vars(tally).items()
    }
    return SourceManifest(
        parts=manifests, task=source.task, licence=source.licence, commercial=source.commercial,
        confirmed=source.confirmed, wanted=dict(counts), made=quota.made, **found,
    )  # fmt: skip


# Keys -------------------------------------------------------------------------------------------------------------------


def _common_key(wanted: Wanted, *, screen: Screen) -> str:
    return _digest(
        FORMAT, wanted.seed, wanted.scale, wanted.max_chars, screen.index.fingerprint,
        hashlib.sha256(screen.boilerplate.tobytes()).hexdigest(), screen.with_responses,
    )  # fmt: skip


def _key(
    source: Source,
    *,
    after: str,
    wanted: Wanted,
    local: Path | None,
    candidates: Mapping[tuple[str, str], Sequence[CandidateAnswer]],
) -> str:
    files = [
        (str(file), file.stat().st_size, file.stat().st_mtime_ns)
        for part in source.parts
        for file in (local_files(source, part=part, folder=local) if local is not None else [])
    ]
    hubs = [(part.hub, part.config, part.split, part.revision) for part in source.parts]
    mine = sorted(
        (problem, [(one.text, one.right, one.answer, one.generator) for one in found])
        for (name, problem), found in candidates.items()
        if name == source.name
    )
    return _digest(after, source.name, sorted(wanted_of(source, scale=wanted.scale).items()), hubs, files, mine)


def _digest(*values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


# Problems that need answers ---------------------------------------------------------------------------------------------


def open_problems(
    wanted: Wanted, *, local: Path | None, screen: Screen, spare: float
) -> dict[str, list[TrainingProblem]]:
    """Draw the problems whose answers must be sampled.

    Args:
        wanted: Settings of the mixture.
        local: As in `build`.
        screen: As in `build`.
        spare: Number of problems to draw per requested item. Use more than 1, because some problems get no right or no
            wrong answer.

    Returns:
        Source -> problems.

    Raises:
        ValueError: as in `build`, or `spare` is below 1.
    """
    if spare < 1:
        raise ValueError(f"spare: expected at least 1, got {spare}")
    found: dict[str, list[TrainingProblem]] = {}
    for source in chosen_sources(wanted.sources, only=wanted.only, commercial=wanted.commercial):
        if not any(part.sampled for part in source.parts):
            continue
        num_wanted = round(sum(wanted_of(source, scale=wanted.scale).values()) * spare)
        parts = [rows for rows in load(source, local=local) if rows.part.sampled]
        sound = sound_problems(source, parts, seed=wanted.seed, screen=screen, known=set(), tally=CollectionStats())
        found[source.name] = list(islice(sound, num_wanted))
    return found
