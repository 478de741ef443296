"""The inputs of a capacity plan: GPUs, models, and figures with their sources.

A figure is measured by a script of this project, published by others, assumed, given by the user, or derived from other
figures. Every figure has a source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tirjudge.errors import TirjudgeError


class PlanError(TirjudgeError, ValueError):
    """A plan is not possible with these inputs. The message says which values are allowed."""


class FigureSource(StrEnum):
    """The kind of source of a figure, from the most to the least reliable."""

    MEASURED = "measured"
    """Measured by a script of this project; the source is its result file."""
    PUBLISHED = "published"
    """From a data sheet, a price list, or a measurement of others."""
    ASSUMED = "assumed"
    """Not measured; the source gives the reason for the assumption."""
    GIVEN = "given"
    """Given by the user."""
    DERIVED = "derived"
    """Computed from other figures; the source is the formula."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFigure:
    """A number of a plan, with its source."""

    name: str
    """Name of the figure; for an input, the name of its option."""
    value: float
    """The number."""
    unit: str
    """Unit of the number; empty for a plain number."""
    origin: FigureSource
    """Kind of source."""
    source: str
    """The source: a file, a publication, a reason, an option or a formula."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, as described by its data sheet."""

    name: str
    """Name on the command line."""
    memory_bytes: float
    """Memory in bytes, as reported by the driver."""
    bandwidth: float
    """Memory bandwidth in bytes per second."""
    flops: float
    """Dense bfloat16 operations per second."""
    usd_per_hour: float
    """Median of the on-demand list prices of several clouds, September 2026."""


_GIB = 1024.0**3

GPUS: Mapping[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        Gpu(name="a100", memory_bytes=80 * _GIB, bandwidth=2.039e12, flops=312e12, usd_per_hour=1.59),
        Gpu(name="h100", memory_bytes=79.6 * _GIB, bandwidth=3.35e12, flops=989e12, usd_per_hour=3.99),
        Gpu(name="h200", memory_bytes=140 * _GIB, bandwidth=4.8e12, flops=989e12, usd_per_hour=4.50),
        Gpu(name="b200", memory_bytes=178 * _GIB, bandwidth=7.7e12, flops=2250e12, usd_per_hour=6.89),
        Gpu(name="l40s", memory_bytes=45 * _GIB, bandwidth=0.864e12, flops=362e12, usd_per_hour=1.09),
        Gpu(name="rtx4090", memory_bytes=24 * _GIB, bandwidth=1.008e12, flops=165e12, usd_per_hour=0.54),
    )
}
"""Name on the command line -> GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The sizes of a dense decoder that determine its cost, from its `config.json`."""

    name: str
    """Name of the model."""
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    tied: bool
    """Whether the output matrix is the embedding matrix."""

    @classmethod
    def parse(cls, config: Mapping[str, Any], *, name: str) -> ModelShape:
        """Read the sizes from the content of a `config.json`.

        Raises:
            PlanError: the model is not a dense decoder, or a size is missing.
        """
        if any(config.get(name) for name in ("num_experts", "num_local_experts", "n_routed_experts")):
            raise PlanError(f"{name}: is a mixture of experts; only dense models can be planned")
        try:
            num_heads, hidden_size = config["num_attention_heads"], config["hidden_size"]
            return cls(
                name=name,
                num_layers=config["num_hidden_layers"],
                hidden_size=hidden_size,
                intermediate_size=config["intermediate_size"],
                num_heads=num_heads,
                num_kv_heads=config.get("num_key_value_heads") or num_heads,
                head_dim=config.get("head_dim") or hidden_size // num_heads,
                vocab_size=config["vocab_size"],
                tied=config.get("tie_word_embeddings", False),
            )
        except KeyError as error:
            raise PlanError(f"{name}: config.json has no {error}") from None
        except (TypeError, ZeroDivisionError) as error:
            raise PlanError(f"{name}: config.json: a size is not a whole number above 0") from error

    @property
    def num_body_parameters(self) -> int:
        """Parameters of the layers' matrices, which every token passes through."""
        attention = 2 * self.hidden_size * self.head_dim * (self.num_heads + self.num_kv_heads)
        return self.num_layers * (attention + 3 * self.hidden_size * self.intermediate_size)

    @property
    def num_head_parameters(self) -> int:
        """Parameters of the output matrix, which every generated token passes through."""
        return self.vocab_size * self.hidden_size

    @property
    def num_parameters(self) -> int:
        """Parameters of all matrices. The norms, less than 0.1 %, are not included."""
        return self.num_body_parameters + self.num_head_parameters * (1 if self.tied else 2)

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of the keys and values of one token in all layers, at 2 bytes per number."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * 2

    @property
    def attention_flops_per_pair(self) -> float:
        """Operations when one token attends to one other token: one product with its key and one with its value."""
        return 4.0 * self.num_layers * self.num_heads * self.head_dim


def _qwen3(name: str, *, layers: int, hidden: int, intermediate: int, heads: int, tied: bool) -> ModelShape:
    return ModelShape(
        name=f"Qwen3-{name}",
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_heads=heads,
        num_kv_heads=8,
        head_dim=128,
        vocab_size=151_936,
        tied=tied,
    )


MODELS: Mapping[str, ModelShape] = {
    "0.6B": _qwen3("0.6B", layers=28, hidden=1024, intermediate=3072, heads=16, tied=True),
    "1.7B": _qwen3("1.7B", layers=28, hidden=2048, intermediate=6144, heads=16, tied=True),
    "4B": _qwen3("4B", layers=36, hidden=2560, intermediate=9728, heads=32, tied=True),
    "8B": _qwen3("8B", layers=36, hidden=4096, intermediate=12288, heads=32, tied=False),
    "14B": _qwen3("14B", layers=40, hidden=5120, intermediate=17408, heads=40, tied=False),
    "32B": _qwen3("32B", layers=64, hidden=5120, intermediate=25600, heads=64, tied=False),
}
"""Size -> dense model of the Qwen3 family."""


def find_gpu(name: str) -> Gpu:
    """Return a GPU by its name (case-insensitive).

    Raises:
        PlanError: the table has no such GPU.
    """
    gpu = GPUS.get(name.lower())
    if gpu is None:
        raise PlanError(f"gpu: expected one of {', '.join(GPUS)}, got {name!r}")
    return gpu


def find_model(name: str) -> ModelShape:
    """Return the shape of a model.

    Args:
        name: a size of the Qwen3 family (`8B`, `Qwen/Qwen3-8B`), or the folder of a dense checkpoint.

    Raises:
        PlanError: the model is unknown, cannot be read, or is not dense.
    """
    shape = MODELS.get(name.rpartition("/")[2].removeprefix("Qwen3-"))
    if shape is not None:
        return shape
    path = Path(name) / "config.json"
    if not path.is_file():
        raise PlanError(f"model: expected one of {', '.join(MODELS)} or a folder with a config.json, got {name!r}")
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise PlanError(f"{path}: cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise PlanError(f"{path}: is not a JSON object; give the config.json of a model")
    return ModelShape.parse(config, name=Path(name).name)
