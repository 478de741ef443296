"""The file `judge.json` of a checkpoint: sizes and format of the judge, its lineage and its measured quality.

Serving needs only `Profile`. The other fields document how the weights were trained.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator, model_validator

from tirjudge.errors import CheckpointError
from tirjudge.formats import FIRST_FORMAT, format_named, is_file
from tirjudge.template_options import TemplateOptions, check_options, shown_options

LOOP_VERSION = 1
"""Value of `loop_version` in older files, which stands for `format: tirjudge/1`."""

OF_TRAINING = ("format_sha256", "prompts_sha256", "lineage", "metrics")
"""Fields of a trained checkpoint. A file with one of them and without a format was trained for `tirjudge/1`, which was
the only format then."""


class HasTemplateOptions(Protocol):
    """The part of a tokenizer that knows its chat template."""

    async def chat_template_kwargs(self) -> TemplateOptions | None: ...


class Profile(BaseModel):
    """Sizes and format of a judge.

    The defaults are meant for an instruction-tuned model with at least 4B parameters on vLLM. The `judge.json` of a
    checkpoint overrides them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = "judge"
    """Name of the model in judgments and in `/v1/models`."""
    context_tokens: int = Field(default=16384, gt=0)
    """Maximum length of a sequence, in tokens: prompt and answer together."""
    rollout_tokens: int = Field(default=8192, gt=0)
    """Maximum number of tokens generated in one rollout, over all turns."""
    thinking_tokens: int = Field(default=8192, gt=0)
    """Maximum number of tokens of all thoughts in one rollout. They are not part of `rollout_tokens`. A thought that
    reaches the limit is closed, and the model answers."""
    observation_tokens: int = Field(default=1024, gt=0)
    """Maximum length of one observation (tool output with its delimiters), in tokens. Longer outputs are cut."""
    prompt_chars: int = Field(default=24_000, gt=0)
    """Maximum length of the prompt shown in full, in characters. Of a longer prompt, head and tail are shown."""
    response_chars: int = Field(default=16_000, ge=0)
    """Maximum length of a response shown in full, in characters. Of a longer response, head and tail are shown; with 0,
    nothing of any response and of the reference. Programs always get the full text."""
    all_responses_chars: int = Field(default=32_000, gt=0)
    """Maximum total of the characters shown of all responses. Each response gets an equal share."""
    group_size: int = Field(default=26, ge=2)
    """Maximum number of responses in one listwise prompt."""
    vote_temperature: float = Field(default=1.0, ge=0.0)
    """Temperature of a request with several votes that sets none."""
    label_temperature: float = Field(default=1.0, gt=0.0)
    """The probabilities of the labels are taken to the power 1 / this temperature and normalized. It is fitted on
    held-out items, so that the probabilities are calibrated (`tirjudge train calibrate`). 1: as the model gives them."""
    program_weight: float | None = Field(default=None, ge=0.0)
    """How much a program of which the model is not sure lowers the confidence. The label probabilities of the model have the
    weight p ** program_weight, where p is the probability of the texts of all its calls, and even probabilities have the
    rest. None: p is not read. Fitted like `label_temperature`."""
    checked_from: float = Field(default=0.0, ge=0.0, le=1.0)
    """Minimum of p ** program_weight for a verdict to be `checked`. 0: every verdict that a program implies."""
    unchecked_weight: float = Field(default=1.0, gt=0.0, le=1.0)
    """Weight of the label probabilities of a verdict that is not `checked`; even probabilities have the rest. Fitted like
    `label_temperature`. 1: as the model gives them."""
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    """Nucleus sampling mass of a turn whose temperature is not 0. None: that of the format, otherwise 1."""
    format: str | None = None
    """Prompt format, such as `tirjudge/1`. None: the default format, `tirjudge/2`; the model was not trained on any. Older
    files have `loop_version: 1` instead of `tirjudge/1`."""
    format_sha256: str | None = None
    """Hash of the format that the model was trained on. None: it was not trained on a format. Older files call this
    field `prompts_sha256`."""
    tokenizer_sha256: str | None = None
    """`tokenizer_sha256` of the tokenizer used in training. None: not recorded."""
    chat_template_kwargs: dict[str, JsonValue] | None = None
    """Options of the chat template in every prompt, in training and in serving. None: `{"enable_thinking": false}` if
    the template has this option, else `{}`; older files of trained judges mean `{}`."""

    shows_functions: bool | None = None
    """Whether prompts present the functions that programs may call. None: yes, except in `tirjudge/1`, whose judges were
    trained without them: they judge worse with these lines."""

    @model_validator(mode="before")
    @classmethod
    def _read_older_names(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        values = dict(values)
        version = values.pop("loop_version", None)
        if version not in (None, LOOP_VERSION):
            raise ValueError(f"trained for loop version {version}, but this release supports {LOOP_VERSION}")
        is_older = version is not None or any(values.get(name) is not None for name in OF_TRAINING)
        older = {
            "format": FIRST_FORMAT if is_older else None,
            "format_sha256": values.pop("prompts_sha256", None),
        }
        for name, value in older.items():
            if value is not None and values.get(name) is None:
                values[name] = value
        if values.get("format_sha256") is not None and values.get("chat_template_kwargs") is None:
            values["chat_template_kwargs"] = {}
        return values

    @field_validator("chat_template_kwargs")
    @classmethod
    def _has_no_reserved_names(cls, kwargs: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
        return None if kwargs is None else check_options(kwargs)

    @property
    def presents_functions(self) -> bool:
        """Whether prompts present the functions that programs may call."""
        return self.format != FIRST_FORMAT if self.shows_functions is None else self.shows_functions

    def asked_in(self, format: str) -> Profile:
        """Return the profile with that format.

        Raises:
            CheckpointError: the model was trained for another format.
        """
        if self.format not in (None, format):
            raise CheckpointError(f"format: {format} given, but {self.name} was trained for {self.format}")
        return self.model_copy(update={"format": format})

    def rendered_with(self, kwargs: TemplateOptions | None) -> Profile:
        """Return the profile with these options of the chat template. None: unchanged.

        Raises:
            CheckpointError: the model was trained with other options.
        """
        if kwargs is None or kwargs == self.chat_template_kwargs:
            return self
        if self.was_trained_on_format:
            raise CheckpointError(
                f"chat_template_kwargs: {shown_options(kwargs)} given, but {self.name} was trained with "
                f"{shown_options(self.chat_template_kwargs)}; remove --chat-template-kwargs"
            )
        return self.model_copy(update={"chat_template_kwargs": dict(kwargs)})

    async def resolved_by(self, tokenizer: HasTemplateOptions) -> Profile:
        """Return the profile with the options of the chat template that the opened tokenizer uses.

        Raises:
            CheckpointError, EngineUnavailable: as in `Tokenizer.chat_template_kwargs`.
        """
        kwargs = await tokenizer.chat_template_kwargs()
        return self.model_copy(update={"chat_template_kwargs": None if kwargs is None else dict(kwargs)})

    def as_first_written(self) -> dict[str, Any]:
        """Return the profile under the field names of older files, so that the hashes of existing records stay
        valid."""
        values = self.model_dump(mode="json")
        if self.thinking_tokens == Profile.model_fields["thinking_tokens"].default:
            del values["thinking_tokens"]
        if not self.chat_template_kwargs:
            del values["chat_template_kwargs"]
        if self.shows_functions is None:
            del values["shows_functions"]
        if self.top_p is None:
            del values["top_p"]
        if self.label_temperature == Profile.model_fields["label_temperature"].default:
            del values["label_temperature"]
        if self.program_weight is None:
            del values["program_weight"]
        if not self.checked_from:
            del values["checked_from"]
        if self.unchecked_weight == Profile.model_fields["unchecked_weight"].default:
            del values["unchecked_weight"]
        format, sha256 = values.pop("format"), values.pop("format_sha256")
        return {
            **values,
            "loop_version": LOOP_VERSION if format == FIRST_FORMAT else format,
            "prompts_sha256": sha256,
        }

    @property
    def was_trained_on_format(self) -> bool:
        """Whether the model was trained to judge. Such a model answers every prompt with a verdict."""
        return self.format_sha256 is not None


class Lineage(BaseModel):
    """Origin of the weights of a checkpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    parent: str | None = None
    """SHA-256 of the initial weights. None: random initial weights, or not recorded."""
    run_id: str | None = None
    """Id of the training run. None: not recorded."""
    stage: str | None = None
    """Stage of the run, such as `rl-1`. None: the run has only one stage."""
    weights_version: int | None = Field(default=None, ge=0)
    """Number of training steps of the stage. None: not recorded."""
    git_commit: str | None = None
    """Commit of the training code. None: the code was not in a git repository."""
    data_sha256: str | None = None
    """SHA-256 of the manifest of the training data. None: no manifest."""


class CheckpointFile(Profile):
    """Complete content of `judge.json`."""

    lineage: Lineage | None = None
    """Origin of the weights. None: not recorded."""
    metrics: dict[str, Annotated[float, Field(allow_inf_nan=False)]] | None = None
    """Metrics on held-out items, name -> value, such as `val/acc`. None: not measured."""

    @property
    def profile(self) -> Profile:
        """The fields that serving needs."""
        return Profile(**{name: getattr(self, name) for name in Profile.model_fields})


def load_profile(checkpoint: Path) -> Profile:
    """Return the profile of a checkpoint folder, or the default profile if the folder has no `judge.json`.

    Raises:
        CheckpointError: as in `read_checkpoint_file`.
    """
    if not (checkpoint / "judge.json").exists():
        return Profile(name=checkpoint.name)
    return read_checkpoint_file(checkpoint).profile


def resolved_profile(checkpoint: Path) -> Profile:
    """Return the profile of a checkpoint folder, with the options of its chat template resolved.

    Raises:
        CheckpointError: as in `read_checkpoint_file`, or the chat template is broken.
    """
    from tirjudge.chat_template import ChatTemplate

    profile = load_profile(checkpoint)
    template = ChatTemplate.load(checkpoint, kwargs=profile.chat_template_kwargs)
    return profile.model_copy(update={"chat_template_kwargs": template.kwargs})


def read_checkpoint_file(checkpoint: Path) -> CheckpointFile:
    """Read the `judge.json` of a checkpoint folder and check that this release supports it.

    Raises:
        CheckpointError: the file does not exist or is malformed, the checkpoint was trained for another format, or the
            tokenizer in the folder is not the one used in training. The message is one line.
    """
    path = checkpoint / "judge.json"
    try:
        file = CheckpointFile.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise CheckpointError(f"{path}: {_first_problem(error)}") from error
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    if file.format is not None and is_file(file.format):
        raise CheckpointError(f"{path}: format: {file.format} given, but a checkpoint names an installed format")
    try:
        found = format_named(file.format)
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    if file.format_sha256 not in (None, found.sha256):
        raise CheckpointError(
            f"{path}: its training prompts differ from those of this release; retrain it or use the release it came with"
        )
    _check_tokenizer(file.tokenizer_sha256, path=checkpoint / "tokenizer.json")
    return file


def _check_tokenizer(trained_with: str | None, *, path: Path) -> None:
    """Check the hash of the tokenizer. A folder without a tokenizer passes: it is the profile of a remote model."""
    if trained_with is None or not path.exists():
        return
    found = tokenizer_sha256(path)
    if found != trained_with:
        raise CheckpointError(
            f"{path}: tokenizer {found[:12]} differs from the tokenizer of the training, {trained_with[:12]}"
        )


def tokenizer_sha256(path: Path) -> str:
    """Return the SHA-256 of the content of a `tokenizer.json`, without its layout, truncation and padding settings.

    Raises:
        CheckpointError: the file is not valid JSON.
    """
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{path}: broken: {error}") from error
    decides = {name: value for name, value in content.items() if name not in ("truncation", "padding")}
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def _first_problem(error: ValidationError) -> str:
    """Return the first error as one line, without pydantic's URLs."""
    first = error.errors(include_url=False)[0]
    field = ".".join(map(str, first["loc"]))
    given = f", {first['input']!r:.60} given" if field and first["type"] != "extra_forbidden" else ""
    said = first["msg"].removeprefix("Value error, ")
    return " ".join(f"{field + ': ' if field else ''}{said}{given}".split())
