"""One training run on disk: what was asked for, what has been done, and what came of it.

    config.yaml     the recipe, resolved: every key, defaults included
    manifest.json   what it ran with: versions, commit, hashes of the recipe and of the data, seed
    state.json      the stages and where each stands; replaced as a whole, never half written
    metrics.jsonl   one line a step
    rollouts/       trajectories
    eval/           what each checkpoint said of each held-out item
    STAGE/          what a stage leaves: `checkpoint/`, or `kept.parquet`
    best            a link to the best checkpoint

Only one process at a time has a run: the lock goes with its process, however that ends.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from tirjudge.durable import lock_folder, refuse_other_run, remove_unfinished, replacing_file, write_file

PACKAGES = ("tirjudge", "torch", "transformers", "trl", "accelerate", "verl", "vllm", "tokenizers", "numpy", "datasets")
"""Whose versions a manifest names, as far as they are installed."""

StageKind = Literal["start", "sample", "sft", "rl"]
Status = Literal["waiting", "running", "done"]


class CellRecord(BaseModel):
    """What was measured on one task in one mode."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num: int
    num_right: int
    low: float
    """Lower end of Wilson's 95 % interval of the accuracy."""
    high: float


class ValidationRecord(BaseModel):
    """What a checkpoint earned on the held-out items."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    accuracy: float
    """Mean over task x mode."""
    low: float
    """Lower end of Wilson's 95 % interval, as if all items were throws of one coin."""
    high: float
    num: int
    """Items."""
    tool_use: float | None
    """Share of the rollouts on verifiable items that ran a program; None: there are none."""
    failed_programs: float | None
    """Share of the programs that did not end well; None: none ran."""
    no_verdict: float
    """Share of the rollouts that had to be forced, or have no verdict at all."""
    cells: dict[str, CellRecord]
    """"task/mode" -> what was measured there."""


class StageRecord(BaseModel):
    """One stage of a run."""

    model_config = ConfigDict(extra="forbid")

    name: str
    kind: StageKind
    status: Status = "waiting"
    input: str | None = None
    """Checkpoint that it began with, relative to the run where it lies in it; None: not begun, or from nothing."""
    output: str | None = None
    """What it left, relative to the run; None: not done."""
    sha256: str | None = None
    """Of that output."""
    counts: dict[str, int] = {}
    """What it counted, such as the trajectories that were kept."""
    validation: ValidationRecord | None = None
    """None: not measured, or it makes no checkpoint."""
    accepted: bool | None = None
    """Whether the next stage builds on it; None: not done, or nothing to decide."""
    complaints: list[str] = []
    """What the gate found."""


class State(BaseModel):
    """All stages of a run, and what to take away from it."""

    model_config = ConfigDict(extra="forbid")

    command: str
    """`zero`, `distill`, ..."""
    stages: list[StageRecord]
    current: str | None = None
    """Stage whose checkpoint the next one builds on."""
    best: str | None = None
    """Stage with the best held-out accuracy."""

    def stage(self, name: str) -> StageRecord:
        return next(stage for stage in self.stages if stage.name == name)

    @property
    def done(self) -> bool:
        return all(stage.status == "done" for stage in self.stages)


class RunFolder:
    """The folder of one run, held by this process until `close`.

    Args:
        path: made if it is not there.
        config: the resolved recipe.
        state: where a new run stands; a run that is there goes on from its own.
        facts: what the manifest shall hold besides versions and hashes, such as hashes of the data.

    Raises:
        ValueError: another process has the run, or it was begun with another recipe, other data or as another command.
    """

    def __init__(self, path: Path, *, config: Mapping[str, Any], state: State, facts: Mapping[str, Any]) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._lock = lock_folder(path, closed=False)
        try:
            self.resumed = (path / "state.json").exists()
            if self.resumed:
                self._check_same(config=config, state=state, facts=facts)
                self.state = read_state(path)
            else:
                self._begin(config=config, facts=facts)
                self.state = state
                self.save()
            remove_unfinished(path)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another process have the run."""
        os.close(self._lock)

    def save(self) -> None:
        """Put the state on disk."""
        write_file(self.path / "state.json", self.state.model_dump_json(indent=1) + "\n", closed=False)

    def mark_best(self, checkpoint: Path) -> None:
        """Let `best` lead to a checkpoint of this run, or elsewhere."""
        with replacing_file(self.path / "best") as fresh:
            fresh.symlink_to(self.relative(checkpoint))

    def relative(self, path: Path) -> str:
        """A path as the state names it: relative to the run if it lies in it."""
        absolute = path.resolve()
        inside = absolute.is_relative_to(self.path.resolve())
        return str(absolute.relative_to(self.path.resolve())) if inside else str(absolute)

    def absolute(self, name: str) -> Path:
        """The path behind a name in the state."""
        return self.path / name

    def _begin(self, *, config: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        recipe = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
        write_file(self.path / "config.yaml", recipe, closed=False)
        manifest = {
            "recipe_sha256": hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest(),
            "versions": versions(),
            "python": platform.python_version(),
            "machine": platform.machine(),
            "commit": commit_of(Path(__file__).parent),
            **facts,
        }
        write_file(self.path / "manifest.json", json.dumps(manifest, indent=1) + "\n", closed=False)

    def _check_same(self, *, config: Mapping[str, Any], state: State, facts: Mapping[str, Any]) -> None:
        begun_with = yaml.safe_load((self.path / "config.yaml").read_text(encoding="utf-8"))
        manifest = json.loads((self.path / "manifest.json").read_text(encoding="utf-8"))
        there = {**begun_with, "command": read_state(self.path).command}
        refuse_other_run(
            self.path,
            there=there | {name: manifest.get(name) for name in facts},
            here={**config, "command": state.command, **facts},
        )


def read_state(path: Path) -> State:
    """Where a run stands; reading needs no lock.

    Raises:
        ValueError: there is no run, or its state cannot be read.
    """
    file = path / "state.json"
    if not file.exists():
        raise ValueError(f"{path}: no run here; `tirjudge train zero RECIPE --out {path}` begins one")
    try:
        return State.model_validate_json(file.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise ValueError(f"{file}: cannot be read: {error.errors()[0]['msg']}") from error


def sha256_of(path: Path) -> str:
    """Of a file, or of all files under a folder with their names."""
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    for file in files:
        if path.is_dir():
            digest.update(f"{file.relative_to(path)}\0".encode())
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Of the packages that decide what a run does."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def commit_of(folder: Path) -> str | None:
    """The commit of the code, with "+" if it has been changed since; None where it is not in a repository."""
    try:
        said = [
            subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10, check=True)
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        ]
    except (OSError, subprocess.SubprocessError):
        return None
    return said[0].stdout.strip() + ("+" if said[1].stdout.strip() else "")
