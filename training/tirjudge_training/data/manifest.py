"""What a folder of training data says of itself: counts by source, mode and reason, licences, revisions, seed, hash."""

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
    name: str
    hub: str
    config: str | None
    split: str
    revision: str
    pinned: bool
    """Whether the revision is a commit."""
    places: list[str]
    """Where its rows were read, with their number."""


class SourceManifest(_Stated):
    parts: list[PartManifest]
    task: str
    licence: str
    commercial: bool
    confirmed: bool
    """Whether repository and licence were read on the public card."""
    wanted: dict[Mode, int]
    made: dict[Mode, int]
    num_rows: int
    num_seen: int
    """Rows that were looked at, until there were items enough."""
    rejected: dict[Reason, int]
    """Reason -> rows among those."""
    examples: dict[Reason, str]
    contaminated_by: dict[str, int]
    num_template_grams: int


class FileManifest(_Stated):
    num_items: int
    by_mode: dict[Mode, int]
    by_task: dict[str, int]
    sha256: str
    """Of the items, whatever the file is written in."""


class MixtureManifest(_Stated):
    version: str
    """Of tirjudge."""
    seed: int
    """Of all that is drawn: rows, candidates, places, orders, what is held out."""
    scale: float
    commercial: bool
    only: list[str]
    max_chars: int
    sources: dict[str, SourceManifest]
    left_out: dict[str, Reason]
    """Sources that are no part of the mixture for a reason of their own."""
    benchmarks: dict[str, int]
    """Benchmark -> prompts that rows were compared with."""
    with_responses: bool
    generators: dict[str, int]
    """Models that wrote responses -> items; their terms may bind whoever trains on these."""
    files: dict[str, FileManifest]


def described(items: Sequence[TrainingItem]) -> FileManifest:
    """The counts and the hash of a file of items."""
    return FileManifest(
        num_items=len(items),
        by_mode=dict(Counter(item.mode for item in items)),
        by_task=dict(sorted(Counter(item.task for item in items).items())),
        sha256=hash_of(items),
    )


def hash_of(items: Sequence[TrainingItem]) -> str:
    """Of all fields of all items, in their order."""
    digest = hashlib.sha256()
    for item in items:
        fields = {name: getattr(item, name) for name in TrainingItem.__slots__}
        digest.update(json.dumps(fields, default=ChatMessage.model_dump, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


def read_manifest(folder: Path) -> MixtureManifest:
    """Raises ValueError: there is none, or it is none of ours."""
    path = folder / MANIFEST
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file; `tirjudge train data build --out {folder}` makes one")
    try:
        return MixtureManifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
