"""A recipe: everything that decides a training run, as YAML. A run keeps it resolved, every default included.

Recipes that come with the package are named without their folder, as `tiny-cpu-zero`. A trainer with options of its own
reads them from the section of its name. Nothing heavy is imported here.
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
"""Name of the checkpoint that comes with the package."""


class Section(BaseModel):
    """A part of a recipe; a key it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class MixtureSection(Section):
    """Shares of what is generated, as `synthetic.examples.Mixture` has them; what is left over is instructions."""

    numeric: float = Field(default=0.13, ge=0.0, le=1.0)
    conduct: float = Field(default=0.12, ge=0.0, le=1.0)
    many_instructions: float = Field(default=0.55, ge=0.0, le=1.0)
    list_size: int | None = Field(default=None, ge=2)
    kinds: tuple[str, ...] | None = None
    """Names of the kinds of instruction; None: all."""


class WeakStart(Section):
    """A weak judge, made first: supervised for a few steps on answers of a teacher that errs."""

    parent: str | None = None
    """Checkpoint that it goes on from and whose shape it has, a folder or `bundled`; None: it is made from nothing."""
    seed: int = Field(default=1, ge=0)
    steps: int = Field(default=600, ge=1)
    examples_per_step: int = Field(default=64, ge=1)
    examples_per_shard: int = Field(default=4096, ge=1)
    batch_tokens: int = Field(default=3072, ge=1)
    whole: float = Field(default=0.25, ge=0.0, le=1.0)
    """Share of the examples that are trained on beyond the end of the checks."""
    mode_shares: tuple[float, float, float] = (0.4, 0.35, 0.25)
    """Pointwise, pairwise, listwise."""
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
    """Processes that share a step."""
    guesses: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the verifiable examples that the teacher answers without a program, by a guess."""
    wrong_plans: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share that it answers with a program that checks something else."""
    mixture: MixtureSection = MixtureSection()


class Start(Section):
    """What training begins with, pi_0."""

    checkpoint: str | None = None
    """A folder, or `bundled`; None: `weak`, or else the bundled judge."""
    weak: WeakStart | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Start:
        if self.checkpoint is not None and self.weak is not None:
            raise ValueError("checkpoint and weak both given; set one of them to null")
        return self


class Synthetic(Section):
    """Generated items; task is `instructions`, `math` or `conduct` (where no program may be written)."""

    seed: int = Field(default=1, ge=0)
    held_out: bool = False
    """Phrasings, words and topics that training never sees."""
    pointwise: int = Field(default=0, ge=0)
    pairwise: int = Field(default=0, ge=0)
    listwise: int = Field(default=0, ge=0)
    mixture: MixtureSection = MixtureSection()


class Data(Section):
    """Items, of files or generated."""

    items: tuple[str, ...] = ()
    """Files of items: .parquet, .jsonl or .jsonl.gz."""
    synthetic: Synthetic | None = None
    tasks: tuple[str, ...] | None = None
    """Only items of these tasks are trained on; None: all. What is held out is of every task."""
    limit: int | None = Field(default=None, ge=1)
    """Most items, the first ones; None: all."""
    trajectories: tuple[str, ...] = ()
    """Files of trajectories, for `tirjudge train sft`."""


class SamplingConfig(Section):
    """How trajectories for supervised learning are sampled, and which of them are kept."""

    rollouts: int = Field(default=4, ge=1)
    """Of one prompt, G."""
    preset: Literal["paper", "robust"] = "robust"
    """`paper`: fewest programs, then shortest. `robust`: the strategy must be worth learning first."""
    keep_per_prompt: int = Field(default=1, ge=1)
    temperature: float = Field(default=1.0, gt=0.0)
    limit: int | None = Field(default=None, ge=1)
    """Most items to sample; None: all that are trained on."""
    shard: int = Field(default=256, ge=1)
    """Items in one file; a killed run samples no more than that again."""
    concurrency: int = Field(default=32, ge=1)
    """Items side by side, each with all its rollouts."""


class ValidationSection(Section):
    """Held-out items."""

    share: float = Field(default=0.05, gt=0.0, lt=1.0)
    """Of each task and mode."""
    seed: int = Field(default=0, ge=0)
    limit: int | None = Field(default=None, ge=1)
    """Most items to judge; None: all that are held out."""
    concurrency: int = Field(default=16, ge=1)
    data: Data | None = None
    """Other items to validate on; None: the share of the training items."""


class Teacher(Section):
    """Whose trajectories `distill` learns from; one of the three."""

    checkpoint: str | None = None
    """A folder, or `bundled`."""
    engine_url: str | None = None
    """A vLLM server; `checkpoint` then gives its profile."""
    chat_url: str | None = None
    """Base URL of an OpenAI-compatible chat endpoint; its key stands in TIRJUDGE_CHAT_API_KEY."""
    chat_model: str | None = None

    @model_validator(mode="after")
    def _is_someone(self) -> Teacher:
        if self.chat_url is None and self.engine_url is None and self.checkpoint is None:
            raise ValueError("nothing given; set checkpoint, engine_url, or chat_url with chat_model")
        if (self.chat_url is None) != (self.chat_model is None):
            raise ValueError("chat_url and chat_model go together")
        return self


class EngineConfig(Section):
    """What rolls out while training."""

    kind: Literal["embedded", "vllm"] = "embedded"
    """`embedded`: in this process, for small models. `vllm`: a server at `url`."""
    url: str | None = None
    weights: str = "/dev/shm/tirjudge-weights"
    """Folder that new weights go through to a vLLM server; the server reads it too."""
    backend: str = "numpy"
    """Of the embedded engine: `numpy`, `torch`, or a device such as `torch:cuda`."""
    max_batch: int = Field(default=32, ge=1)
    """Sequences in one step of the embedded engine."""

    @model_validator(mode="after")
    def _has_url(self) -> EngineConfig:
        if (self.kind == "vllm") != (self.url is not None):
            raise ValueError(f"kind {self.kind} and url {self.url} given; vllm needs a url, and nothing else takes one")
        return self


class SandboxConfig(Section):
    """Where programs run."""

    slots: int | None = Field(default=None, ge=1)
    """Programs side by side; None: one a core."""
    allow_unsafe: bool = False
    """Run programs even where nothing isolates them."""


class Stages(Section):
    """How often the cycle is gone through."""

    rounds: int = Field(default=2, ge=0)
    """Of `zero`: sample, SFT, RL, after the first RL. The paper reports 0, 1 and 2."""


class Collecting(Section):
    """How groups are collected in RL."""

    max_rollouts: int = Field(default=64, ge=1)
    """Rollouts under way at a time."""
    max_draws: float = Field(default=6.0, ge=1.0)
    """Groups rolled out at most, times those wanted; then groups that `rl.group_filter` would leave out fill the step."""


class Launch(Section):
    """Processes that share SFT and RL stages."""

    processes: int = Field(default=1, ge=1)
    """Started by torchrun, one a device."""
    accelerate: str | None = None
    """`fsdp2`, or a config file of accelerate, which then starts them. None: torchrun, data-parallel."""

    @field_validator("accelerate")
    @classmethod
    def _is_there(cls, given: str | None) -> str | None:
        if given is not None and not Path(accelerate_file(given)).is_file():
            raise ValueError(f"{given} is not a file; give a config file of accelerate, or fsdp2")
        return given


class Recipe(Section):
    """Everything that decides a run."""

    seed: int = Field(default=0, ge=0)
    """Of data orders and rollouts."""
    trainer: str = "trl"
    """An installed trainer; TRL does the kinds of stages that it does not do."""
    tools: bool = True
    """False: text alone, the prompt offers no programs (an ablation)."""
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
    """Of `ttrl`."""
    engine: EngineConfig = EngineConfig()
    launch: Launch = Launch()
    sandbox: SandboxConfig = SandboxConfig()
    report_to: tuple[str, ...] = ()
    """Trackers besides metrics.jsonl: tensorboard, wandb, trackio."""

    @property
    def tools_switch(self) -> Literal["auto", "off"]:
        """As in a request."""
        return "auto" if self.tools else "off"

    def settings_of(self, trainer: str) -> Any:
        """What the section of a trainer says; it is there if the recipe names the trainer or has the section."""
        return getattr(self, trainer)

    def seed_of(self, stage: str) -> int:
        """Of what is drawn in a stage."""
        return int.from_bytes(hashlib.sha256(f"{self.seed}/{stage}".encode()).digest()[:6], "big")

    def resolved(self) -> dict[str, Any]:
        """As plain values, every key."""
        return self.model_dump(mode="json")


def accelerate_file(name: str) -> str:
    """Path of a config file of accelerate: of the package's own by its name, or of a file."""
    if name == "fsdp2":
        return str(resources.files("tirjudge_training").joinpath("accelerate_configs", "fsdp2.yaml"))
    return name


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    folder = resources.files("tirjudge_training").joinpath("recipes")
    return sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))


def load_recipe(recipe: str, *, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe of the package by its name, or a YAML file, with some keys set anew.

    Args:
        recipe: name or path.
        overrides: such as `rl.steps=20`; the value is YAML.

    Raises:
        ValueError: there is none, or a key or value is wrong; says which, what was given and what is possible.
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
        raise ValueError(f"{source}: {type(tree).__name__} given; a recipe is a mapping of keys to values")
    for override in overrides:
        _set(tree, override)
    return parse_recipe(tree, source=source)


def parse_recipe(tree: Mapping[str, Any], *, source: str) -> Recipe:
    """A recipe from plain values.

    Raises:
        ValueError: names the key, what was given and what is possible.
    """
    trainer = tree.get("trainer", Recipe.model_fields["trainer"].default)
    if isinstance(trainer, str) and trainer not in TRAINERS:
        raise ValueError(f"{source}: trainer: {trainer!r} given; installed are {', '.join(TRAINERS)}")
    with_sections = _with_sections(tuple(name for name in TRAINERS if name in (trainer, *tree)))
    try:
        return with_sections.model_validate(tree)
    except ValidationError as error:
        raise ValueError(f"{source}: {_said(error.errors()[0], recipe=with_sections)}") from None


@cache
def _with_sections(trainers: tuple[str, ...]) -> type[Recipe]:
    """A recipe with a section for each of these trainers that has settings."""
    settings = {name: TRAINERS[name].settings for name in trainers}
    sections: dict[str, Any] = {name: (kind, kind()) for name, kind in settings.items() if kind is not None}
    for name in sections:
        if name in Recipe.model_fields or hasattr(Recipe, name):
            raise ValueError(
                f"trainer: {name!r} cannot be the name of a section in a recipe; its package has to rename it"
            )
    return create_model("Recipe", __base__=Recipe, **sections) if sections else Recipe


def _set(tree: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals or not key:
        raise ValueError(f"--set {override}: not KEY=VALUE, such as rl.steps=20")
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


def _said(error: Any, *, recipe: type[Recipe]) -> str:
    key = ".".join(map(str, error["loc"]))
    given = error["input"]
    if error["type"] == "extra_forbidden":
        return f"{key}: there is no such key; {_known(error['loc'], recipe=recipe)}"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error":
        return f"{key}: {message}" if key else message
    if error["type"] == "tuple_type":
        return f"{key}: {given!r} given; give a list, such as [{given}]"
    if error["type"] == "model_type":
        return f"{key}: {given!r} given; give keys with their values"
    return f"{key}: {given!r} given; {message[:1].lower()}{message[1:]}"


def _known(path: Sequence[Any], *, recipe: type[Recipe]) -> str:
    """The key that is meant, or else all keys of the section."""
    model: Any = recipe
    for name in path[:-1]:
        field = getattr(model, "model_fields", {}).get(name)
        kinds = () if field is None else (field.annotation, *getattr(field.annotation, "__args__", ()))
        model = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
    names = list(getattr(model, "model_fields", {}))
    close = difflib.get_close_matches(str(path[-1]), names, n=1)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(names)}"
