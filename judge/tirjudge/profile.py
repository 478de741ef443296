"""`judge.json` of a checkpoint: how it is judged with, what it was trained for, and where it comes from.

Serving needs the first two, `Profile`; the rest is for whoever asks how these weights came about.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tirjudge.errors import CheckpointError
from tirjudge.formats import DEFAULT_FORMAT, format_named

LOOP_VERSION = 1
"""What older files say instead of `format: tirjudge/1`."""


class Profile(BaseModel):
    """Defaults fit an instruction-tuned model of 4B parameters or more on vLLM; a checkpoint's own file overrides them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = "judge"
    """The model's name in answers and in `/v1/models`."""
    context_tokens: int = Field(default=16384, gt=0)
    """Longest sequence the model takes."""
    rollout_tokens: int = Field(default=8192, gt=0)
    """Most tokens that the model may generate in one rollout, all turns together."""
    observation_tokens: int = Field(default=1024, gt=0)
    """Longest program output shown."""
    prompt_chars: int = Field(default=24_000, gt=0)
    """Longest prompt shown whole; of a longer one, head and tail."""
    response_chars: int = Field(default=16_000, gt=0)
    """Longest response shown whole; of a longer one, head and tail. Programs always have it whole."""
    all_responses_chars: int = Field(default=32_000, gt=0)
    """Most characters shown of all responses together; each gets an equal share."""
    group_size: int = Field(default=26, ge=2)
    """Most responses in one listwise prompt."""
    vote_temperature: float = Field(default=1.0, ge=0.0)
    """Temperature when several votes are asked for and the request names none."""
    format: str | None = None
    """The format that it is asked in, such as `tirjudge/1`; None: the default one, which it was not trained for. Older files
    say `loop_version: 1` for `tirjudge/1`."""
    format_sha256: str | None = None
    """Hash of the format that it was trained on; None: it was not trained on one. Older files call it `prompts_sha256`."""
    tokenizer_sha256: str | None = None
    """`tokenizer_sha256` of the tokenizer that it was trained with; None: nobody noted it."""

    @model_validator(mode="before")
    @classmethod
    def _read_older_names(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        values = dict(values)
        version = values.pop("loop_version", None)
        if version not in (None, LOOP_VERSION):
            raise ValueError(f"trained for loop version {version}, this is {LOOP_VERSION}")
        if version is not None:
            values.setdefault("format", DEFAULT_FORMAT)
        if (older := values.pop("prompts_sha256", None)) is not None:
            values.setdefault("format_sha256", older)
        return values

    def asked_in(self, format: str) -> Profile:
        """The same model, asked in that format.

        Raises:
            CheckpointError: it was trained for another one.
        """
        if self.format not in (None, format):
            raise CheckpointError(f"format: {format} given, but {self.name} was trained for {self.format}")
        return self.model_copy(update={"format": format})

    def as_first_written(self) -> dict[str, Any]:
        """Under the names of `loop_version: 1`, so that hashes of records made before and after agree."""
        values = self.model_dump(mode="json")
        format, sha256 = values.pop("format"), values.pop("format_sha256")
        return {
            **values,
            "loop_version": LOOP_VERSION if format == DEFAULT_FORMAT else format,
            "prompts_sha256": sha256,
        }

    @property
    def was_trained_on_format(self) -> bool:
        """Whether it was trained to judge; such a model answers everything with a verdict."""
        return self.format_sha256 is not None


class Lineage(BaseModel):
    """Where the weights of a checkpoint come from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    parent: str | None = None
    """SHA-256 of the weights that it was trained from; None: from nothing, or nobody noted it."""
    run_id: str | None = None
    """The run that made it; None: it has no name."""
    stage: str | None = None
    """Of the run, such as `rl-1`; None: it has one stage only."""
    weights_version: int | None = Field(default=None, ge=0)
    """How many steps of the stage are behind it; None: nobody counted."""
    git_commit: str | None = None
    """Of the code that trained it; None: it lay in no repository."""
    data_sha256: str | None = None
    """Of the manifest of the data that it was trained on; None: there is none."""


class CheckpointFile(Profile):
    """The whole file."""

    lineage: Lineage | None = None
    """None: nobody noted it."""
    metrics: dict[str, Annotated[float, Field(allow_inf_nan=False)]] | None = None
    """Name -> value, as measured on held-out items, such as `val/acc`; None: nothing was measured."""

    @property
    def profile(self) -> Profile:
        """What serving needs of it."""
        return Profile(**{name: getattr(self, name) for name in Profile.model_fields})


def load_profile(checkpoint: Path) -> Profile:
    """The profile of a checkpoint folder; the defaults if it has no `judge.json`.

    Raises:
        CheckpointError: as `read_checkpoint_file`.
    """
    if not (checkpoint / "judge.json").exists():
        return Profile(name=checkpoint.name)
    return read_checkpoint_file(checkpoint).profile


def read_checkpoint_file(checkpoint: Path) -> CheckpointFile:
    """The `judge.json` of a checkpoint folder, if this version can judge with it.

    Raises:
        CheckpointError: there is none, it is malformed, or the checkpoint was trained for other prompts, another loop or
            another tokenizer than lies beside it. The message is one line.
    """
    path = checkpoint / "judge.json"
    try:
        file = CheckpointFile.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise CheckpointError(f"{path}: {_first_problem(error)}") from error
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    try:
        found = format_named(file.format)
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    if file.format_sha256 not in (None, found.sha256):
        raise CheckpointError(
            f"{path}: trained on other prompts than these; retrain it or use the release it came with"
        )
    _check_tokenizer(file.tokenizer_sha256, path=checkpoint / "tokenizer.json")
    return file


def _check_tokenizer(trained_with: str | None, *, path: Path) -> None:
    """A folder without a tokenizer is the profile of a model that runs elsewhere."""
    if trained_with is None or not path.exists():
        return
    found = tokenizer_sha256(path)
    if found != trained_with:
        raise CheckpointError(
            f"{path}: another tokenizer ({found[:12]}) than the checkpoint was trained with ({trained_with[:12]})"
        )


def tokenizer_sha256(path: Path) -> str:
    """Of what a `tokenizer.json` does: neither the layout of the file counts, nor how batches are cut and padded.

    Raises:
        CheckpointError: it is not JSON.
    """
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{path}: broken: {error}") from error
    decides = {name: value for name, value in content.items() if name not in ("truncation", "padding")}
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def _first_problem(error: ValidationError) -> str:
    """In one line, without the addresses that pydantic adds."""
    first = error.errors(include_url=False)[0]
    field = ".".join(map(str, first["loc"]))
    given = f", {first['input']!r:.60} given" if field and first["type"] != "extra_forbidden" else ""
    said = first["msg"].removeprefix("Value error, ")
    return " ".join(f"{field + ': ' if field else ''}{said}{given}".split())
