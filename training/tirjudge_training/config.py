"""Recipes: all settings of a training run, as YAML. A run stores its recipe resolved, with all defaults.

Bundled recipes are given by name, such as `tiny-cpu-zero`. A trainer with additional options reads them from the
section with its name. This module imports no heavy packages.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator, model_validator

from tirjudge_training.collector import PseudoLabels
from tirjudge_training.gate import GateRule
from tirjudge_training.rewards import RewardRule
from tirjudge_training.settings import RLSettings, SFTSettings
from tirjudge_training.trainers import TRAINERS

BUNDLED = "bundled"
"""Name of the bundled checkpoint."""


class Section(BaseModel):
    """A section of a recipe. Unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class MixtureSection(Section):
    """Shares of the kinds of generated items, as in `synthetic.examples.Mixture`. The remainder is instructions."""

    numeric: float = Field(default=0.13, ge=0.0, le=1.0)
    conduct: float = Field(default=0.12, ge=0.0, le=1.0)
    evidence: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of questions about stores of evidence, pointwise and pairwise. They need `functions: [evidence]`."""
    written: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of prompts with instructions as people type them."""
    many_instructions: float = Field(default=0.55, ge=0.0, le=1.0)
    list_size: int | None = Field(default=None, ge=2)
    kinds: tuple[str, ...] | None = None
    """Names of the kinds of instruction. None: all."""


class WeakStart(Section):
    """A weak judge, trained before the first stage: a few supervised steps on answers of a teacher with errors."""

    parent: str | None = None
    """Checkpoint to start from, which also sets the shape of the model: a folder or `bundled`. None: train from
    scratch."""
    seed: int = Field(default=1, ge=0)
    steps: int = Field(default=600, ge=1)
    examples_per_step: int = Field(default=64, ge=1)
    examples_per_shard: int = Field(default=4096, ge=1)
    batch_tokens: int = Field(default=3072, ge=1)
    whole: float = Field(default=0.25, ge=0.0, le=1.0)
    """Share of the examples with the complete judgment. The other examples end after the checks."""
    mode_shares: tuple[float, float, float] = (0.4, 0.35, 0.25)
    """Shares of the modes: pointwise, pairwise, listwise."""
    matrix_lr: float = Field(default=0.02, gt=0.0)
    other_lr: float = Field(default=0.004, gt=0.0)
    warmup_steps: int = Field(default=50, ge=1)
    vocab_size: int = Field(default=2048, ge=300)
    hidden_size: int = Field(default=192, ge=8)
    intermediate_size: int = Field(default=512, ge=8)
    num_layers: int = Field(default=4, ge=1)
    num_heads: int = Field(default=4, ge=1)
    num_kv_heads: int = Field(default=2, ge=1)
    head_dim: int = Field(default=48, ge=2)
    workers: int = Field(default=1, ge=1)
    """Number of processes that share a step."""
    guesses: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the verifiable examples that the teacher answers by a guess, without a program."""
    wrong_plans: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the verifiable examples that the teacher answers with a program for a different kind of instruction."""
    mixture: MixtureSection = MixtureSection()


class Start(Section):
    """The initial policy of the training (pi_0)."""

    checkpoint: str | None = None
    """A checkpoint folder, or `bundled`. None: `weak` if it is given, otherwise the bundled judge."""
    weak: WeakStart | None = None
    """Settings of a weak judge to train first. None: start from `checkpoint`."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Start:
        if self.checkpoint is not None and self.weak is not None:
            raise ValueError("checkpoint and weak both given; set one of them to null")
        return self


class Synthetic(Section):
    """Generated items. Their tasks are `instructions`, `math` and `conduct` (no program should be written)."""

    seed: int = Field(default=1, ge=0)
    held_out: bool = False
    """Whether to use the phrasings, words and topics that training never sees."""
    pointwise: int = Field(default=0, ge=0)
    """Number of pointwise items."""
    pairwise: int = Field(default=0, ge=0)
    """Number of pairwise items."""
    listwise: int = Field(default=0, ge=0)
    """Number of listwise items."""
    mixture: MixtureSection = MixtureSection()


class Data(Section):
    """Items from files, or generated."""

    items: tuple[str, ...] = ()
    """Files of items: .parquet, .jsonl or .jsonl.gz."""
    synthetic: Synthetic | None = None
    """Settings of generated items. None: no items are generated."""
    tasks: tuple[str, ...] | None = None
    """Train only on items of these tasks. None: all tasks. The held-out items are always of all tasks."""
    limit: int | None = Field(default=None, ge=1)
    """Maximum number of items; the first ones are used. None: no limit."""
    trajectories: tuple[str, ...] = ()
    """Files of trajectories, for `tirjudge train sft`."""


class SamplingConfig(Section):
    """How trajectories for supervised learning are sampled, and which trajectories are kept."""

    rollouts: int = Field(default=4, ge=1)
    """Number of rollouts per prompt, G."""
    preset: Literal["paper", "robust"] = "robust"
    """Selection of trajectories. `paper`: fewest programs, then shortest. `robust`: first drop losing strategies."""
    keep_per_prompt: int = Field(default=1, ge=1)
    """Maximum number of trajectories to keep per prompt."""
    temperature: float = Field(default=1.0, gt=0.0)
    limit: int | None = Field(default=None, ge=1)
    """Maximum number of items to sample. None: all training items."""
    shard: int = Field(default=256, ge=1)
    """Number of items per file. A resumed run repeats at most this number of items."""
    concurrency: int = Field(default=32, ge=1)
    """Maximum number of items that are sampled concurrently, each with all its rollouts."""


class ValidationSection(Section):
    """Settings of the validation on held-out items."""

    share: float = Field(default=0.05, gt=0.0, lt=1.0)
    """Share of the items of each task and mode that is held out."""
    seed: int = Field(default=0, ge=0)
    """Seed of the split."""
    limit: int | None = Field(default=None, ge=1)
    """Maximum number of items to judge. None: all held-out items."""
    concurrency: int = Field(default=16, ge=1)
    """Maximum number of items that are judged concurrently."""
    data: Data | None = None
    """Separate items to validate on. None: hold out a share of the training items."""


class Teacher(Section):
    """The teacher whose trajectories `distill` learns from: a checkpoint, a vLLM server or a chat endpoint."""

    checkpoint: str | None = None
    """A checkpoint folder, or `bundled`."""
    engine_url: str | None = None
    """URL of a vLLM server. `checkpoint` then provides the profile."""
    chat_url: str | None = None
    """Base URL of an OpenAI-compatible chat endpoint. TIRJUDGE_CHAT_API_KEY holds its API key."""
    chat_model: str | None = None
    """Name of the model at `chat_url`."""

    @model_validator(mode="after")
    def _has_a_source(self) -> Teacher:
        if self.chat_url is None and self.engine_url is None and self.checkpoint is None:
            raise ValueError("nothing given; set checkpoint, engine_url, or chat_url with chat_model")
        if (self.chat_url is None) != (self.chat_model is None):
            raise ValueError("only one of chat_url and chat_model given; set both")
        return self


class EngineConfig(Section):
    """The engine that generates rollouts during training."""

    kind: Literal["embedded", "vllm"] = "embedded"
    """`embedded`: in this process, for small models. `vllm`: a server at `url`."""
    url: str | None = None
    """URL of the vLLM server."""
    weights: str = "/dev/shm/tirjudge-weights"
    """Folder for passing new weights to a vLLM server. The server must be able to read it."""
    backend: str = "numpy"
    """Backend of the embedded engine: `numpy`, `torch`, or a device such as `torch:cuda`."""
    max_batch: int = Field(default=32, ge=1)
    """Maximum number of sequences in one step of the embedded engine."""

    @model_validator(mode="after")
    def _has_url(self) -> EngineConfig:
        if (self.kind == "vllm") != (self.url is not None):
            raise ValueError(f"kind {self.kind} and url {self.url} given; set a url for kind vllm only")
        return self


class SandboxConfig(Section):
    """The sandbox that runs programs."""

    slots: int | None = Field(default=None, ge=1)
    """Maximum number of programs that run concurrently. None: one per core."""
    allow_unsafe: bool = False
    """Run programs even if no isolation is available."""


class Stages(Section):
    """Number of training rounds."""

    rounds: int = Field(default=2, ge=0)
    """Rounds of `zero` (sample, SFT, RL) after the first RL stage. The paper reports 0, 1 and 2."""


class Collecting(Section):
    """How groups are collected in RL."""

    max_rollouts: int = Field(default=64, ge=1)
    """Maximum number of concurrent rollouts."""
    max_draws: float = Field(default=6.0, ge=1.0)
    """Maximum number of groups to roll out per step, as a multiple of the groups needed. After that, groups that
    `rl.group_filter` excludes fill the step."""


class Launch(Section):
    """Processes that share SFT and RL stages."""

    processes: int = Field(default=1, ge=1)
    """Number of processes that torchrun starts, one per device."""
    accelerate: str | None = None
    """`fsdp2`, or a config file for accelerate, which then starts the processes. None: torchrun, data-parallel."""

    @field_validator("accelerate")
    @classmethod
    def _is_a_file(cls, given: str | None) -> str | None:
        if given is not None and not Path(accelerate_file(given)).is_file():
            raise ValueError(f"{given} is not a file; give a config file of accelerate, or fsdp2")
        return given


class Recipe(Section):
    """All settings of a run."""

    seed: int = Field(default=0, ge=0)
    """Seed of data orders and rollouts."""
    trainer: str = "trl"
    """Name of an installed trainer. TRL runs the kinds of stages that the trainer does not support."""
    tools: bool = True
    """Whether prompts offer tools. False: text only (an ablation)."""
    functions: tuple[str, ...] = ()
    """Functions that programs may call, as for `--tool` in serving: `run`, or NAME:SETTINGS."""
    start: Start = Start()
    data: Data = Data()
    reward: RewardRule = RewardRule()
    sft: SFTSettings = SFTSettings()
    rl: RLSettings = RLSettings()
    collecting: Collecting = Collecting()
    sampling: SamplingConfig = SamplingConfig()
    validation: ValidationSection = ValidationSection()
    stages: Stages = Stages()
    gate: GateRule = GateRule()
    teacher: Teacher | None = None
    voting: PseudoLabels = PseudoLabels()
    """Settings of the vote on labels, for the command `ttrl`."""
    engine: EngineConfig = EngineConfig()
    launch: Launch = Launch()
    sandbox: SandboxConfig = SandboxConfig()
    report_to: tuple[str, ...] = ()
    """Trackers besides metrics.jsonl: tensorboard, wandb, trackio."""

    @property
    def tools_switch(self) -> Literal["auto", "off"]:
        """Value of the field `tools` in requests to the judge."""
        return "auto" if self.tools else "off"

    def settings_of(self, trainer: str) -> Any:
        """Return the settings in the section of a trainer.

        Raises:
            AttributeError: the recipe has no section of the trainer, and does not select the trainer.
        """
        return getattr(self, trainer)

    def seed_of(self, stage: str) -> int:
        """Return the seed for random draws in a stage."""
        return int.from_bytes(hashlib.sha256(f"{self.seed}/{stage}".encode()).digest()[:6], "big")

    def resolved(self) -> dict[str, Any]:
        """Return all keys as plain values."""
        return self.model_dump(mode="json")


def accelerate_file(name: str) -> str:
    """Return the path of a config file for accelerate. `fsdp2` names the file in this package."""
    if name == "fsdp2":
        return str(resources.files("tirjudge_training").joinpath("accelerate_configs", "fsdp2.yaml"))
    return name


def recipe_names() -> list[str]:
    """Return the names of the bundled recipes."""
    folder = resources.files("tirjudge_training").joinpath("recipes")
    return sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))


def load_recipe(recipe: str, *, overrides: Sequence[str] = ()) -> Recipe:
    """Load a bundled recipe by name, or a YAML file, and override some keys.

    Args:
        recipe: Name of a bundled recipe, or path of a YAML file.
        overrides: Overrides such as `rl.steps=20`; the values are YAML.

    Raises:
        ValueError: the recipe does not exist, or a key or value is invalid. The message has the key, the given value
            and the valid values.
    """
    path, source = Path(recipe), recipe
    if recipe in recipe_names():
        path = Path(str(resources.files("tirjudge_training").joinpath("recipes", f"{recipe}.yaml")))
    elif not path.is_file():
        raise ValueError(f"recipe: {recipe} is not a file; give a YAML file, or one of {', '.join(recipe_names())}")
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except UnicodeDecodeError:
        raise ValueError(f"{source}: not YAML: not text in UTF-8") from None
    except yaml.YAMLError as error:
        raise ValueError(f"{source}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(tree, dict):
        raise ValueError(f"{source}: a recipe must be a mapping of keys to values, not {type(tree).__name__}")
    for override in overrides:
        _set(tree, override)
    return parse_recipe(tree, source=source)


def parse_recipe(tree: Mapping[str, Any], *, source: str) -> Recipe:
    """Validate a recipe given as plain values.

    Args:
        tree: Keys and values.
        source: Name of the recipe for error messages.

    Raises:
        ValueError: a key or value is invalid. The message has the key, the given value and the valid values.
    """
    trainer = tree.get("trainer", Recipe.model_fields["trainer"].default)
    if isinstance(trainer, str) and trainer not in TRAINERS:
        raise ValueError(f"{source}: trainer: {trainer!r} given; installed are {', '.join(TRAINERS)}")
    with_sections = _with_sections(tuple(name for name in TRAINERS if name in (trainer, *tree)))
    try:
        return with_sections.model_validate(tree)
    except ValidationError as error:
        raise ValueError(f"{source}: {_error_text(error.errors()[0], recipe=with_sections)}") from None


@cache
def _with_sections(trainers: tuple[str, ...]) -> type[Recipe]:
    """Return a recipe class with a section for each of the trainers that has settings."""
    settings = {name: TRAINERS[name].settings for name in trainers}
    sections: dict[str, Any] = {name: (kind, kind()) for name, kind in settings.items() if kind is not None}
    for name in sections:
        if name in Recipe.model_fields or hasattr(Recipe, name):
            raise ValueError(
                f"trainer: {name!r} is a reserved key of recipes; the package of the trainer must rename it"
            )
    return create_model("Recipe", __base__=Recipe, **sections) if sections else Recipe


def _set(tree: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals or not key:
        raise ValueError(f"--set {override}: not of the form KEY=VALUE, such as rl.steps=20")
    *path, last = key.split(".")
    place = tree
    for name in path:
        if not isinstance(place.get(name), dict):
            place[name] = {}
        place = place[name]
    try:
        place[last] = yaml.safe_load(value)
    except yaml.YAMLError:
        raise ValueError(f"--set {override}: the value is not YAML") from None


def _error_text(error: Any, *, recipe: type[Recipe]) -> str:
    key = ".".join(map(str, error["loc"]))
    given = error["input"]
    if error["type"] == "extra_forbidden":
        return f"{key}: unknown key; {_suggestion(error['loc'], recipe=recipe)}"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error":
        return f"{key}: {message}" if key else message
    if error["type"] == "tuple_type":
        return f"{key}: {given!r} given; give a list, such as [{given}]"
    if error["type"] == "model_type":
        return f"{key}: {given!r} given; give a mapping of keys to values"
    return f"{key}: {given!r} given; {message[:1].lower()}{message[1:]}"


def _suggestion(path: Sequence[Any], *, recipe: type[Recipe]) -> str:
    """Return the most similar key, or all keys of the section if no key is similar."""
    model: Any = recipe
    for name in path[:-1]:
        field = getattr(model, "model_fields", {}).get(name)
        kinds = () if field is None else (field.annotation, *getattr(field.annotation, "__args__", ()))
        model = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
    names = list(getattr(model, "model_fields", {}))
    close = difflib.get_close_matches(str(path[-1]), names, n=1)
    return f"did you mean {close[0]}?" if close else f"valid keys are {', '.join(names)}"
