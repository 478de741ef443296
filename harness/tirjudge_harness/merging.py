"""`tirjudge bench merge`: merge the shards of a run into one run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tirjudge.durable import differences
from tirjudge_harness.items import InputError
from tirjudge_harness.row_sampling import Shard
from tirjudge_harness.run import (
    VARYING,
    PlannedExample,
    RunManifest,
    compared_of,
    read_manifest,
    read_plan,
    write_run,
)
from tirjudge_harness.run_store import read_judgments

SHOWN_MISSING = 5
"""Number of examples and keys that an error message lists. The message counts the rest."""


def merge(out: Path, *, shards: Sequence[Path]) -> int:
    """Merge the shards of one run into a new folder. Return the number of examples.

    Raises:
        InputError: `out` exists, a shard is missing or incomplete, or a shard belongs to another run.
    """
    if out.exists():
        raise InputError(f"{out} already exists; give a new folder")
    manifests = [read_manifest(shard) for shard in shards]
    _check_same_run(manifests, shards=shards)
    planned: list[PlannedExample] = []
    judgments = {}
    for shard in shards:
        plan, (answers, _) = read_plan(shard), read_judgments(shard)
        missing = [asked.key for one in plan for asked in one.asked if asked.key not in answers]
        if missing:
            names = dict.fromkeys(
                one.outline.id for one in plan if any(asked.key not in answers for asked in one.asked)
            )
            raise InputError(
                f"{shard} is not complete: {len(missing)} judgments are missing, of {_some(list(names))} "
                f"(keys {_some([key[:16] for key in missing])}); run this shard again to complete it"
            )
        planned += plan
        judgments |= answers
    planned.sort(key=lambda one: one.place)
    if len(planned) != manifests[0].data.num_examples:
        raise InputError(f"expected {manifests[0].data.num_examples} examples in all shards, found {len(planned)}")
    manifest = manifests[0].model_copy(
        update={"shard": None, "created": min(manifest.created for manifest in manifests)}
    )
    write_run(out, manifest=manifest, planned=planned, judgments=judgments)
    return len(planned)


def _check_same_run(manifests: Sequence[RunManifest], *, shards: Sequence[Path]) -> None:
    first = manifests[0]
    numbers: dict[int, Path] = {}
    for manifest, path in zip(manifests, shards, strict=True):
        if manifest.shard is None:
            raise InputError(f"{path} is not a shard: it was run without --shard")
        if changes := differences(compared_of(first, but=VARYING), compared_of(manifest, but=VARYING)):
            raise InputError(f"{path} and {shards[0]} are shards of different runs: {'; '.join(changes)}")
        shard = Shard.parse(manifest.shard)
        if shard.number in numbers:
            raise InputError(f"{path} and {numbers[shard.number]} are the same shard, {shard}")
        numbers[shard.number] = path
        if shard.of != Shard.parse(first.shard or "").of:
            raise InputError(f"{path} is shard {shard}, {shards[0]} is {first.shard}")
    of = Shard.parse(first.shard or "").of
    if absent := [f"{number}/{of}" for number in range(1, of + 1) if number not in numbers]:
        raise InputError(f"shards are missing: {', '.join(absent)}")


def _some(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_MISSING
    return ", ".join(names[:SHOWN_MISSING]) + (f" and {more} more" if more > 0 else "")
