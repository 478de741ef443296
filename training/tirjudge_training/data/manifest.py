"""The manifest of a folder of training data: counts by source, mode and reason, licenses, revisions, seed and
hashes."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from tirjudge.types import ChatMessage, Mode
from tirjudge_training.data.quality import Reason
from tirjudge_training.items import TrainingItem

MANIFEST = "manifest.json"
TRAIN, VALIDATION = "train.parquet", "validation.parquet"


class _Stated(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PartManifest(_Stated):
    """Origin of the rows of one part of a source."""

    name: str
    hub: str
    config: str | None
    split: str
    revision: str
    pinned: bool
    """Whether the revision is a commit."""
    places: list[str]
    """Files or splits of its rows, with their numbers of rows."""


class SourceManifest(_Stated):
    """Settings and counts of one source."""

    parts: list[PartManifest]
    task: str
    licence: str
    commercial: bool
    confirmed: bool
    """Whether repository and license were checked on the public card."""
    wanted: dict[Mode, int]
    """Requested number of items by mode."""
    made: dict[Mode, int]
    """Number of collected items by mode."""
    num_rows: int
    """Number of all rows."""
    num_seen: int
    """Number of rows that were read before the source had enough items."""
    rejected: dict[Reason, int]
    """Reason -> number of rejected rows."""
    examples: dict[Reason, str]
    """Reason -> details on the first rejected row."""
    contaminated_by: dict[str, int]
    """Benchmark -> number of rows that share an 8-gram with it."""
    num_template_grams: int
    """Number of benchmark 8-grams that were ignored as part of the data set's template."""


class FileManifest(_Stated):
    """Counts and hash of one file of items."""

    num_items: int
    by_mode: dict[Mode, int]
    by_task: dict[str, int]
    sha256: str
    """Hash of the items, independent of the file format."""


class MixtureManifest(_Stated):
    """Manifest of a mixture."""

    version: str
    """Version of tirjudge."""
    seed: int
    """Seed of all random draws: rows, candidates, positions, orders and the held-out split."""
    scale: float
    commercial: bool
    only: list[str]
    max_chars: int
    sources: dict[str, SourceManifest]
    left_out: dict[str, Reason]
    """Excluded source -> reason."""
    benchmarks: dict[str, int]
    """Benchmark -> number of prompts that rows were compared with."""
    with_responses: bool
    """Whether responses were compared in addition to prompts."""
    generators: dict[str, int]
    """Model that wrote responses -> number of items. The terms of the model may apply to training on these items."""
    files: dict[str, FileManifest]


def described(items: Sequence[TrainingItem]) -> FileManifest:
    """Return the counts and the hash of the items of a file."""
    return FileManifest(
        num_items=len(items),
        by_mode=dict(Counter(item.mode for item in items)),
        by_task=dict(sorted(Counter(item.task for item in items).items())),
        sha256=hash_of(items),
    )


def hash_of(items: Sequence[TrainingItem]) -> str:
    """Return the hash of all fields of all items, in order."""
    digest = hashlib.sha256()
    for item in items:
        fields = {name: getattr(item, name) for name in TrainingItem.__slots__}
        digest.update(json.dumps(fields, default=ChatMessage.model_dump, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


def read_manifest(folder: Path) -> MixtureManifest:
    """Read the manifest of a folder.

    Raises:
        ValueError: the manifest is missing or invalid.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise ValueError(f"{path}: no such file; create it with `tirjudge train data build --out {folder}`")
    try:
        return MixtureManifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
