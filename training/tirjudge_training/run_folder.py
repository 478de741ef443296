"""The folder of a training run.

    config.yaml     the resolved recipe: all keys, with defaults
    manifest.json   provenance: versions, commit, hashes of the recipe and of the data, seed
    state.json      the stages and their status; replaced atomically
    metrics.jsonl   one line per step
    rollouts/       trajectories
    eval/           results of each checkpoint on each held-out item
    STAGE/          output of a stage: `checkpoint/`, or `kept.parquet`
    best            symbolic link to the best checkpoint

Only one process at a time can hold a run. The lock is released when its process ends, even if it is killed.
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
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from tirjudge.durable import lock_folder, refuse_other_run, remove_unfinished, replacing_file, write_file

PACKAGES = ("tirjudge", "torch", "transformers", "trl", "accelerate", "verl", "vllm", "tokenizers", "numpy", "datasets")
"""Packages whose versions a manifest records, if they are installed."""

StageKind = Literal["start", "sample", "sft", "rl"]
Status = Literal["waiting", "running", "done"]


class CellRecord(BaseModel):
    """Results on one task in one mode."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num: int
    """Number of items."""
    num_right: int
    """Number of items judged correctly."""
    low: float
    """Lower end of Wilson's 95 % interval of the accuracy."""
    high: float
    """Upper end of the interval."""


class ValidationRecord(BaseModel):
    """Results of a checkpoint on the held-out items."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    accuracy: float
    """Mean over task x mode."""
    low: float
    """Lower end of Wilson's 95 % interval; the items are treated as independent Bernoulli trials."""
    high: float
    """Upper end of the interval."""
    num: int
    """Number of items."""
    tool_use: float | None
    """Share of the rollouts on verifiable items that ran a program. None: no such items."""
    failed_programs: float | None
    """Share of the programs that failed. None: no program ran."""
    no_verdict: float
    """Share of the rollouts with a forced or missing verdict."""
    cells: dict[str, CellRecord]
    """"task/mode" -> results."""
    selective: dict[str, JsonValue] | None = None
    """Coverage and accuracy of the verdicts, in total and by basis. None: a run from before these figures."""


STATE = "state.json"
"""Name of the file with the stages and their status."""


class StageRecord(BaseModel):
    """One stage of a run."""

    model_config = ConfigDict(extra="forbid")

    name: str
    kind: StageKind
    status: Status = "waiting"
    input: str | None = None
    """Path of the input checkpoint; relative to the run if it is inside. None: not started, or no input."""
    output: str | None = None
    """Path of the output; relative to the run if it is inside. None: not done, or no output."""
    sha256: str | None = None
    """Hash of the output. None: no output."""
    counts: dict[str, int] = {}
    """Counts of the stage, such as the number of kept trajectories."""
    validation: ValidationRecord | None = None
    """Results on the held-out items. None: not validated, or the stage has no checkpoint."""
    accepted: bool | None = None
    """Whether later stages build on it. None: not decided."""
    complaints: list[str] = []
    """Regressions found by the gate, or the reason why the stage was skipped."""


class State(BaseModel):
    """State of a run: its stages, the current checkpoint and the best checkpoint."""

    model_config = ConfigDict(extra="forbid")

    command: str
    """Command of the run: `zero`, `distill`, ..."""
    stages: list[StageRecord]
    """Stages in order."""
    current: str | None = None
    """Name of the stage whose checkpoint the next stage builds on. None: no stage was accepted yet."""
    best: str | None = None
    """Name of the stage with the best held-out accuracy. None: no stage was accepted yet."""

    def stage(self, name: str) -> StageRecord:
        """Return a stage by its name."""
        return next(stage for stage in self.stages if stage.name == name)

    @property
    def done(self) -> bool:
        """Whether all stages are done."""
        return all(stage.status == "done" for stage in self.stages)


class RunFolder:
    """The folder of one run, locked by this process until `close`.

    Args:
        path: Folder of the run; created if it is missing.
        config: The resolved recipe.
        state: Initial state of a new run. An existing run keeps its state.
        facts: More entries of the manifest, such as hashes of the data.

    Raises:
        ValueError: another process holds the run, or the run was started with a different recipe, data or command.
    """

    def __init__(self, path: Path, *, config: Mapping[str, Any], state: State, facts: Mapping[str, Any]) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._lock = lock_folder(path, closed=False)
        try:
            self.resumed = (path / STATE).exists()
            if self.resumed:
                self._check_same(config=config, state=state, facts=facts)
                self.state = read_state(path)
            else:
                self._create(config=config, facts=facts)
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
        """Release the lock."""
        os.close(self._lock)

    def save(self) -> None:
        """Write the state to disk."""
        write_file(self.path / STATE, self.state.model_dump_json(indent=1) + "\n", closed=False)

    def mark_best(self, checkpoint: Path) -> None:
        """Point the link `best` to a checkpoint, inside or outside of the run."""
        with replacing_file(self.path / "best") as fresh:
            fresh.symlink_to(self.relative(checkpoint))

    def relative(self, path: Path) -> str:
        """Return a path in the form stored in the state: relative if it is inside the run, otherwise absolute."""
        absolute = path.resolve()
        inside = absolute.is_relative_to(self.path.resolve())
        return str(absolute.relative_to(self.path.resolve())) if inside else str(absolute)

    def absolute(self, name: str) -> Path:
        """Return the path for a path stored in the state."""
        return self.path / name

    def _create(self, *, config: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
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
        stored = yaml.safe_load((self.path / "config.yaml").read_text(encoding="utf-8"))
        manifest = json.loads((self.path / "manifest.json").read_text(encoding="utf-8"))
        there = {**stored, "command": read_state(self.path).command}
        refuse_other_run(
            self.path,
            there=there | {name: manifest.get(name) for name in facts},
            here={**config, "command": state.command, **facts},
        )


def read_state(path: Path) -> State:
    """Read the state of a run. This needs no lock.

    Raises:
        ValueError: the folder has no run, or its state cannot be read.
    """
    file = path / STATE
    if not file.exists():
        raise ValueError(f"{path}: no run found; start one with `tirjudge train zero RECIPE --out {path}`")
    try:
        return State.model_validate_json(file.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise ValueError(f"{file}: cannot be read: {error.errors()[0]['msg']}") from error


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, or of all files under a folder with their relative paths."""
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    for file in files:
        if path.is_dir():
            digest.update(f"{file.relative_to(path)}\0".encode())
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Return the installed versions of `PACKAGES`."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def commit_of(folder: Path) -> str | None:
    """Return the git commit of a folder, with "+" if there are uncommitted changes. None: not a repository."""
    try:
        commit, status = [
            subprocess.run(
                ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10, check=True
            ).stdout.strip()
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        ]
    except (OSError, subprocess.SubprocessError):
        return None
    return commit + ("+" if status else "")
