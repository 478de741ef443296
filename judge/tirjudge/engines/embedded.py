"""Embedded engine: continuous batching in NumPy for Qwen3 models of up to 40M parameters, without torch or a GPU.

Larger models need vLLM. The module has three parts: `Qwen3` computes logits, `KVCache` stores keys and values,
`EmbeddedEngine` schedules requests.

The forward pass uses only functions that have the same name in NumPy and torch (`xp`), so it runs on both. Inputs and
sampling are always NumPy. A step processes a flat row of tokens from many sequences: one token of each decoding
sequence and a chunk of some prefilling sequences. Only attention distinguishes the sequences.

On matrices of this size, OpenBLAS is ten times slower with two threads than with one, because its threads spin. The
engine therefore limits BLAS to one thread for the whole process.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from threadpoolctl import threadpool_limits

from tirjudge.engines.base import BaseEngine, EngineFacts
from tirjudge.engines.checkpoint import Qwen3Config, read_eos_token_ids, read_json, read_safetensors
from tirjudge.engines.repetition import is_repeated
from tirjudge.engines.tokenization import LocalTokenizer, StopMatch, find_stop
from tirjudge.errors import CheckpointError, EngineUnavailable, PromptTooLong
from tirjudge.model import EngineKind, EngineOptions, Model, checkpoint_folder, fingerprint, identity_of
from tirjudge.profile import load_profile
from tirjudge.request_context import origin
from tirjudge.template_options import TemplateOptions
from tirjudge.types import Completion, Sampling
from tirjudge.weights_lock import WeightsLock

MAX_BATCH = 16
"""Default of `max_batch`."""

CACHE_TOKENS = 65_536
"""Default of `cache_tokens`."""

PREFILL_TOKENS = 256
"""Maximum number of prompt tokens per step, so that a long prompt delays other requests by tens of milliseconds at
most."""

SHARED_PREFIX_TOKENS = 32
"""A request waits if another running request will compute at least this many tokens of its prompt."""

GREEDY_BELOW = 1e-5
"""Lower temperatures are treated as greedy, as in vLLM, because float32 cannot divide by them."""

_log = logging.getLogger(__name__)

Array = Any
"""A NumPy array or a torch tensor."""


# ------------------------------------------------------------------------------------------------------------- the model


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """Array library and device."""

    xp: Any = np
    """The module `numpy` or `torch`."""
    device: str = "cpu"
    """Device of the arrays."""

    @classmethod
    def parse(cls, name: str) -> Backend:
        """Return the backend for `numpy`, `torch`, or a torch device such as `torch:cuda:1`.

        Raises:
            ValueError: another name.
        """
        library, _, device = name.partition(":")
        if library == "numpy" and not device:
            return cls()
        if library != "torch":
            raise ValueError(f"backend: {name!r} given; give 'numpy', 'torch', or a torch device such as 'torch:cuda'")
        import torch

        return cls(xp=torch, device=device or "cpu")

    def floats(self, values: Any) -> Array:
        """Convert values to a float32 array of this backend."""
        if self.xp is np and hasattr(values, "detach"):  # a torch tensor of any type, on any device
            values = values.detach().float().cpu().numpy()
        return self.xp.asarray(values, dtype=self.xp.float32, device=self.device)

    def ids(self, values: Any) -> Array:
        """Convert values to an int64 array of this backend."""
        return self.xp.asarray(values, dtype=self.xp.int64, device=self.device)

    def zeros(self, shape: tuple[int, ...]) -> Array:
        """Return a float32 array of zeros."""
        return self.xp.zeros(shape, dtype=self.xp.float32, device=self.device)

    def to_numpy(self, array: Array) -> np.ndarray:
        """Convert an array of this backend to NumPy."""
        return array if self.xp is np else array.cpu().numpy()

    def computing(self) -> AbstractContextManager[Any]:
        """Return the context manager for the forward pass. For torch, it disables gradients."""
        return nullcontext() if self.xp is np else self.xp.inference_mode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Weights of one layer, fused and laid out as [in, out]. Both RMSNorm weights are folded into the matrices after
    them."""

    qkv: Array
    """[hidden, (heads + 2 kv_heads) * head_dim]"""
    qk_norm: Array
    """[heads + kv_heads, head_dim]. The rows of the queries include the attention scale, head_dim ** -0.5."""
    out: Array
    """[heads * head_dim, hidden]"""
    gate_up: Array
    """[hidden, 2 * intermediate]"""
    down: Array
    """[intermediate, hidden]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Consecutive new tokens of one sequence in a step."""

    slot: int
    """Index of the sequence's slot in the cache."""
    start: int
    """Position of the first token in the sequence."""
    token_ids: Sequence[int]
    """The new tokens."""


class Qwen3:
    """Qwen3 decoder in float32.

    Args:
        weights: name in the checkpoint -> array. NumPy arrays, or torch tensors for a torch backend.
        config: configuration of the model.
        backend: array library and device. None: NumPy.

    Raises:
        CheckpointError: weights are missing or do not have the shapes of the configuration.
    """

    def __init__(self, weights: Mapping[str, Array], *, config: Qwen3Config, backend: Backend | None = None) -> None:
        config.check(weights)
        self.config = config
        self.backend = backend or Backend()
        if self.backend.xp is np:
            threadpool_limits(limits=1, user_api="blas")  # never reset, because engines may start and end in any order
        with self.backend.computing():
            read = {name.removeprefix("model."): self.backend.floats(array) for name, array in weights.items()}
            self.embedding = read["embed_tokens.weight"] * 1.0  # a copy, because a trainer may change the original
            self.head = _contiguous_transpose(read.get("lm_head.weight", self.embedding) * read["norm.weight"])
            self.layers = [self._fuse(read, f"layers.{n}.") for n in range(config.num_layers)]
            self.cos, self.sin = self._rotary_tables()

    def _fuse(self, read: Mapping[str, Array], prefix: str) -> Layer:
        xp, config = self.backend.xp, self.config

        def stack(*names: str, norm: str) -> Array:
            matrix = xp.concatenate([read[f"{prefix}{name}.weight"] for name in names])
            return _contiguous_transpose(matrix * read[f"{prefix}{norm}.weight"])

        q_norm, k_norm = (read[f"{prefix}self_attn.{name}_norm.weight"] for name in "qk")
        rows = [q_norm * config.head_dim**-0.5] * config.num_heads + [k_norm] * config.num_kv_heads
        names = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
        return Layer(
            qkv=stack(*names, norm="input_layernorm"),
            qk_norm=xp.stack(rows),
            out=_contiguous_transpose(read[f"{prefix}self_attn.o_proj.weight"]),
            gate_up=stack("mlp.gate_proj", "mlp.up_proj", norm="post_attention_layernorm"),
            down=_contiguous_transpose(read[f"{prefix}mlp.down_proj.weight"]),
        )

    def _rotary_tables(self) -> tuple[Array, Array]:
        """Return cos and sin, [context, 1, head_dim]. The first half of sin is negated, for the swapped halves."""
        config = self.config
        frequencies = config.rope_theta ** -(np.arange(0, config.head_dim, 2) / config.head_dim)
        angles = np.arange(config.context_tokens)[:, None, None] * frequencies
        cos = np.concatenate([np.cos(angles), np.cos(angles)], axis=-1)
        sin = np.concatenate([-np.sin(angles), np.sin(angles)], axis=-1)
        return self.backend.floats(cos.astype(np.float32)), self.backend.floats(sin.astype(np.float32))

    def forward(self, spans: Sequence[Span], *, cache: KVCache) -> np.ndarray:
        """Compute the logits after the last token of each span, and store the keys and values of all spans in the
        cache.

        Args:
            spans: at most one span per slot. Spans of one token must come first.
            cache: the cache to read and update.

        Returns:
            Logits, [spans, vocab].
        """
        with self.backend.computing():
            return self.backend.to_numpy(self._logits(spans, cache=cache))

    def _logits(self, spans: Sequence[Span], *, cache: KVCache) -> Array:
        backend = self.backend
        positions = backend.ids(np.concatenate([np.arange(s.start, s.start + len(s.token_ids)) for s in spans]))
        slots = backend.ids(np.repeat([s.slot for s in spans], [len(s.token_ids) for s in spans]))
        groups = self._groups(spans)
        cos, sin = self.cos[positions], self.sin[positions]
        x = self.embedding[backend.ids([i for s in spans for i in s.token_ids])]
        for n, layer in enumerate(self.layers):
            q, k, v = self._project(x, layer=layer, cos=cos, sin=sin)
            keys, values = cache.keys[:, n], cache.values[:, n]
            keys[slots, :, positions] = k
            values[slots, :, positions] = v
            attended = backend.xp.concatenate([group.attend(q, keys=keys, values=values) for group in groups])
            x = x + attended @ layer.out
            x = x + self._feed_forward(x, layer=layer)
        ends = np.cumsum([len(s.token_ids) for s in spans]) - 1
        return self._normed(x[backend.ids(ends)]) @ self.head

    def _project(self, x: Array, *, layer: Layer, cos: Array, sin: Array) -> tuple[Array, Array, Array]:
        """Return rotated queries [tokens, heads, head_dim], rotated keys and values [tokens, kv_heads, head_dim]."""
        config = self.config
        qkv = (self._normed(x) @ layer.qkv).reshape(len(x), -1, config.head_dim)
        num_qk = config.num_heads + config.num_kv_heads
        qk = self._normed(qkv[:, :num_qk]) * layer.qk_norm
        half = config.head_dim // 2
        qk = qk * cos + self.backend.xp.concatenate((qk[..., half:], qk[..., :half]), axis=-1) * sin
        return qk[:, : config.num_heads], qk[:, config.num_heads :], qkv[:, num_qk:]

    def _feed_forward(self, x: Array, *, layer: Layer) -> Array:
        gate_up = self._normed(x) @ layer.gate_up
        gate, up = gate_up[:, : self.config.intermediate_size], gate_up[:, self.config.intermediate_size :]
        half = gate * 0.5  # silu(g) = g sigmoid(g) = g/2 (1 + tanh(g/2)), which cannot overflow
        return (half * self.backend.xp.tanh(half) + half) * up @ layer.down

    def _normed(self, x: Array) -> Array:
        mean_square = (x * x).sum(axis=-1, keepdims=True) * (1 / x.shape[-1])
        return x * (mean_square + self.config.rms_norm_eps) ** -0.5

    def _groups(self, spans: Sequence[Span]) -> list[_AttentionGroup]:
        """Split spans into groups: one group with all spans of one token, and one group for each longer span."""
        num_decoding = sum(len(s.token_ids) == 1 for s in spans)
        parts = [spans[:num_decoding]] if num_decoding else []
        parts += [[s] for s in spans[num_decoding:]]
        groups, first = [], 0
        for part in parts:
            groups.append(_AttentionGroup.of(part, first=first, backend=self.backend))
            first += sum(len(s.token_ids) for s in part)
        return groups


@dataclass(frozen=True, slots=True, kw_only=True)
class _AttentionGroup:
    """Spans of equal length whose attention is computed together, padded to the longest of their sequences."""

    xp: Any
    rows: slice
    """Rows of these tokens in the step."""
    slots: Array
    """Slot indexes, [batch]."""
    num_keys: int
    """Length of the longest sequence, including the new tokens."""
    mask: Array
    """[batch, 1, new, 1, num_keys]: 0 for keys that a query may attend to, -inf for others."""

    @classmethod
    def of(cls, spans: Sequence[Span], *, first: int, backend: Backend) -> _AttentionGroup:
        """Return the group of spans whose tokens start at row `first` of the step."""
        num_new = len(spans[0].token_ids)
        last_keys = np.array([s.start for s in spans])[:, None] + np.arange(num_new)
        hidden = np.arange(last_keys.max() + 1) > last_keys[:, None, :, None, None]
        return cls(
            xp=backend.xp,
            rows=slice(first, first + last_keys.size),
            slots=backend.ids([s.slot for s in spans]),
            num_keys=int(last_keys.max()) + 1,
            mask=backend.floats(np.where(hidden, np.float32(-np.inf), np.float32(0))),
        )

    def attend(self, q: Array, *, keys: Array, values: Array) -> Array:
        """q [tokens, heads, head_dim], keys and values [slots, kv_heads, context, head_dim] -> [rows, heads *
        head_dim]."""
        batch, _, num_new, _, _ = self.mask.shape
        _, kv_heads, _, head_dim = keys.shape
        grouped = q[self.rows].reshape(batch, num_new, kv_heads, -1, head_dim).swapaxes(1, 2)
        flat = grouped.reshape(batch, kv_heads, -1, head_dim)
        scores = flat @ keys[self.slots, :, : self.num_keys].swapaxes(2, 3)
        masked = scores.reshape(batch, kv_heads, num_new, -1, self.num_keys)
        masked += self.mask
        weights = self.xp.exp(scores - self.xp.amax(scores, axis=-1, keepdims=True))
        mixed = weights @ values[self.slots, :, : self.num_keys] / weights.sum(axis=-1, keepdims=True)
        return mixed.reshape(batch, kv_heads, num_new, -1, head_dim).swapaxes(1, 2).reshape(batch * num_new, -1)


def _contiguous_transpose(matrix: Array) -> Array:
    return matrix.T.copy() if isinstance(matrix, np.ndarray) else matrix.T.contiguous()


# ------------------------------------------------------------------------------------------------------------- the cache


@dataclass(slots=True, kw_only=True, eq=False)
class BatchSlot:
    """Cache slot for one sequence."""

    index: int
    """Index of the slot in the cache."""
    token_ids: np.ndarray
    """Ids of the sequence, [context]. Keys and values of the first `length` ids are in the cache."""
    length: int = 0
    """Number of computed ids."""
    session: str | None = None
    """Session that last used the slot. None: never used."""
    salt: str | None = None
    """As in `tirjudge.request_context.RequestContext.cache_salt`."""
    last_used: int = 0
    """Value of the cache's acquisition counter when the slot was last acquired."""
    busy: bool = False
    """Whether a running request uses the slot."""

    def common_prefix(self, token_ids: np.ndarray, *, length: int | None = None) -> int:
        """Return the length of the common prefix of `token_ids` and the first `length` ids of the slot. None: the
        computed ids."""
        size = min(self.length if length is None else length, len(token_ids))
        different = self.token_ids[:size] != token_ids[:size]
        return int(different.argmax()) if different.any() else size


class KVCache:
    """Keys and values of a fixed number of sequences, each array [slots, layers, kv_heads, context, head_dim].

    Slots are reused and never added, so memory is bounded. The operating system allocates it when a slot is first used.
    """

    def __init__(self, model: Qwen3, *, num_slots: int, context_tokens: int) -> None:
        config = model.config
        shape = (num_slots, config.num_layers, config.num_kv_heads, context_tokens, config.head_dim)
        # Attention multiplies the padding after a sequence by 0, so the padding must be finite.
        self.keys, self.values = model.backend.zeros(shape), model.backend.zeros(shape)
        self.slots = [BatchSlot(index=i, token_ids=np.zeros(context_tokens, dtype=np.int64)) for i in range(num_slots)]
        self._num_acquired = 0

    def clear(self) -> None:
        """Drop all cached sequences. No slot may be busy."""
        for slot in self.slots:
            slot.length, slot.session = 0, None

    def sessions(self) -> set[str | None]:
        """Return the sessions that last used each slot."""
        return {slot.session for slot in self.slots}

    def longest_prefix(self, token_ids: np.ndarray, *, salt: str | None) -> tuple[int, BatchSlot]:
        """Return the length of the longest cached prefix of the ids for a salt, and its slot.

        The last id never counts, because its logits must be computed.
        """
        found = [(slot.common_prefix(token_ids[:-1]) if slot.salt == salt else 0, slot) for slot in self.slots]
        return max(found, key=lambda pair: pair[0])

    def acquire(self, token_ids: np.ndarray, *, session: str, salt: str | None) -> BatchSlot:
        """Reserve a slot and copy the longest cached prefix of the ids into it.

        Takes the idle slot of the session if there is one, otherwise the least recently used idle slot.
        """
        num_cached, source = self.longest_prefix(token_ids, salt=salt)
        idle = [slot for slot in self.slots if not slot.busy]
        slot = min(idle, key=lambda slot: (slot.session != session, slot.last_used))
        if slot.salt != salt or slot.common_prefix(token_ids[:-1]) < num_cached:
            for array in (self.keys, self.values):
                array[slot.index, :, :, :num_cached] = array[source.index, :, :, :num_cached]
            slot.token_ids[:num_cached] = source.token_ids[:num_cached]
        self._num_acquired += 1
        slot.length, slot.session, slot.last_used, slot.busy = num_cached, session, self._num_acquired, True
        slot.salt = salt
        return slot


# ------------------------------------------------------------------------------------------------------------ the engine


@dataclass(slots=True, kw_only=True, eq=False)
class _Request:
    """One turn in progress."""

    prompt_ids: np.ndarray
    sampling: Sampling
    session: str
    salt: str | None
    future: Future[Completion]
    rng: np.random.Generator | None
    """Random generator. None: greedy."""
    slot: BatchSlot = field(init=False)
    """Cache slot; set when the request joins the batch."""
    num_cached: int = 0
    """Number of prompt tokens that were cache hits."""
    token_ids: list[int] = field(default_factory=list)
    """Generated ids."""
    logprobs: list[float] = field(default_factory=list)
    token_logprobs: dict[int, float] = field(default_factory=dict)
    written: bytearray = field(default_factory=bytearray)
    """Bytes of the generated text."""

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_ids) + len(self.token_ids)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Swap:
    """A pending replacement of the weights."""

    model: Qwen3
    version: str | int
    future: Future[None]


class EmbeddedEngine(BaseEngine):
    """Serves many rollouts concurrently on one thread. Requests join and leave the batch between steps.

    Args:
        model: the model.
        tokenizer: tokenizer of the same checkpoint.
        eos_token_ids: ids that end a turn. A completion has them in its ids, but not in its text.
        max_batch: maximum number of requests in one step.
        cache_tokens: size of the cache, in tokens. It is split into at least `max_batch` slots of `context_tokens`
            each.
        context_tokens: maximum length of a sequence. None: the context of the model.

    Attributes:
        version: version of the weights given to `swap`. None: the initial weights.
        num_steps: number of forward passes since the start.
        cache: keys and values of the sequences. Only the engine's thread may change it.
    """

    facts = EngineFacts(reloads=True)

    def __init__(
        self,
        model: Qwen3,
        *,
        tokenizer: LocalTokenizer,
        eos_token_ids: frozenset[int],
        max_batch: int = MAX_BATCH,
        cache_tokens: int = CACHE_TOKENS,
        context_tokens: int | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.eos_token_ids = eos_token_ids
        self.max_batch = max_batch
        self.context_tokens = min(context_tokens or model.config.context_tokens, model.config.context_tokens)
        num_slots = max(max_batch, cache_tokens // self.context_tokens)
        self.cache = KVCache(model, num_slots=num_slots, context_tokens=self.context_tokens)
        self._inbox: deque[_Request] = deque()
        self._waiting: list[_Request] = []
        self._running: list[_Request] = []
        self._swaps: deque[_Swap] = deque()
        self.version: str | int | None = None
        self.num_steps = 0
        self._wake = threading.Condition()
        self._ended: str | None = None
        self._thread = threading.Thread(target=self._run, name="tirjudge-engine", daemon=True)
        self._thread.start()

    @classmethod
    def load(
        cls,
        path: Path,
        *,
        backend: str = "numpy",
        max_batch: int = MAX_BATCH,
        cache_tokens: int = CACHE_TOKENS,
        context_tokens: int | None = None,
        chat_template_kwargs: TemplateOptions | None = None,
    ) -> EmbeddedEngine:
        """Load an engine from a Hugging Face checkpoint folder.

        Args:
            path: folder with config.json, model.safetensors (float32, float16 or bfloat16) and tokenizer.json.
            backend: `numpy`, `torch`, or a torch device such as `torch:cuda`.
            max_batch, cache_tokens, context_tokens: as in the constructor.
            chat_template_kwargs: as in `LocalTokenizer.load`.

        Raises:
            CheckpointError: a file is missing or broken, or this engine does not support the model.
        """
        config = Qwen3Config.parse(read_json(path / "config.json"), source=str(path))
        model = Qwen3(read_safetensors(path / "model.safetensors"), config=config, backend=Backend.parse(backend))
        return cls(
            model,
            tokenizer=LocalTokenizer.load(path, chat_template_kwargs=chat_template_kwargs),
            eos_token_ids=read_eos_token_ids(path),
            max_batch=max_batch,
            cache_tokens=cache_tokens,
            context_tokens=context_tokens,
        )

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        """Generate one turn. Cancelling the caller removes the request from the batch.

        Raises:
            PromptTooLong: the ids leave no room in the context.
            EngineUnavailable: the engine is closed or failed.
        """
        salt = origin().cache_salt
        sampled = await self.sample(token_ids, sampling=sampling, session=session, salt=salt)
        return self.tokenizer.fit_ids_to_text(sampled)

    async def sample(
        self, token_ids: Sequence[int], *, sampling: Sampling, session: str, salt: str | None = None
    ) -> Completion:
        """Generate one turn like `generate`, but keep a last token that reaches past the stop string, as vLLM does.

        Args:
            token_ids, sampling, session: as in `generate`.
            salt: requests with the same salt share cached prefixes.
        """
        request = self._checked(token_ids, sampling=sampling, session=session, salt=salt)
        with self._wake:
            if self._ended is not None:
                raise EngineUnavailable(self._ended)
            self._inbox.append(request)
            self._wake.notify()
        return await asyncio.wrap_future(request.future)

    def _checked(self, token_ids: Sequence[int], *, sampling: Sampling, session: str, salt: str | None) -> _Request:
        ids = np.array(token_ids, dtype=np.int64)
        if not 0 < len(ids) < self.context_tokens:
            raise PromptTooLong(f"the sequence has {len(ids)} tokens; the model accepts 1 to {self.context_tokens - 1}")
        if ids.min() < 0 or ids.max() >= self.model.config.vocab_size:
            raise ValueError(f"token_ids: an id is not in the range 0 to {self.model.config.vocab_size - 1}")
        return _Request(
            prompt_ids=ids,
            sampling=sampling,
            session=session,
            salt=salt,
            future=Future(),
            rng=np.random.default_rng(sampling.seed) if sampling.temperature >= GREEDY_BELOW else None,
        )

    async def swap(self, weights: Mapping[str, Array], *, version: str | int) -> None:
        """Replace the weights with others of the same model.

        Running turns finish with the old weights, new turns wait, and the cache is cleared. Use `tirjudge.weights_lock`
        to keep all turns of a rollout on the same weights.

        Args:
            weights: name in the checkpoint -> array of NumPy or torch. The arrays are copied.
            version: version of the new weights.

        Raises:
            CheckpointError: the weights are those of another model or contain NaN or infinity. The old weights are
                still in use.
            EngineUnavailable: the engine is closed or failed.
        """
        self.model.config.check(weights)
        swap = _Swap(model=await asyncio.to_thread(self._model_of, weights), version=version, future=Future())
        with self._wake:
            if self._ended is not None:
                raise EngineUnavailable(self._ended)
            self._swaps.append(swap)
            self._wake.notify()
        await asyncio.wrap_future(swap.future)

    async def reload(self, checkpoint: Path, *, version: str) -> None:
        """Replace the weights with those of a checkpoint folder. See `swap`.

        Raises:
            CheckpointError, EngineUnavailable: as in `swap`.
        """
        config = Qwen3Config.parse(read_json(checkpoint / "config.json"), source=str(checkpoint))
        if config != self.model.config:
            raise CheckpointError(f"{checkpoint}: the sizes of this model differ from those of the served model")
        weights = await asyncio.to_thread(read_safetensors, checkpoint / "model.safetensors")
        await self.swap(weights, version=version)

    def _model_of(self, weights: Mapping[str, Array]) -> Qwen3:
        backend = self.model.backend
        for name, array in weights.items():
            if not bool(backend.xp.isfinite(backend.floats(array)).all()):
                raise CheckpointError(f"weights: {name} contains NaN or infinity")
        return Qwen3(weights, config=self.model.config, backend=backend)

    def close(self) -> None:
        """End the thread. Pending requests fail with `EngineUnavailable`."""
        self._end("the embedded engine was closed")
        self._thread.join()

    @property
    def ended(self) -> str | None:
        """Why the engine has ended. None: it works."""
        return self._ended

    @property
    def num_running(self) -> int:
        """Number of requests in the batch."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Number of requests that wait to join the batch."""
        return len(self._inbox) + len(self._waiting)

    def _end(self, reason: str) -> None:
        with self._wake:
            self._ended = self._ended or reason
            self._wake.notify()

    # Everything below runs on the engine's thread.

    def _run(self) -> None:
        try:
            while self._has_work():
                self._step()
        except Exception as error:
            _log.exception("the embedded engine failed")
            self._end(f"the embedded engine failed: {type(error).__name__}: {error}")
        for request in [*self._running, *self._waiting, *self._inbox]:
            if request.future.set_running_or_notify_cancel():
                request.future.set_exception(EngineUnavailable(self._ended))
        for swap in self._swaps:
            if swap.future.set_running_or_notify_cancel():
                swap.future.set_exception(EngineUnavailable(self._ended))
        self._running, self._waiting = [], []
        self._inbox.clear()
        self._swaps.clear()

    def _has_work(self) -> bool:
        """Wait until there is work. Return False when the engine has been ended."""
        with self._wake:
            self._wake.wait_for(lambda: self._ended or self._inbox or self._waiting or self._running or self._swaps)
            self._waiting += self._inbox
            self._inbox.clear()
        return self._ended is None

    def _step(self) -> None:
        self._drop_cancelled()
        if not self._running:
            self._take_weights()
        if not self._swaps:
            self._admit()
        batch = self._schedule()
        if batch:
            logits = self.model.forward([span for _, span in batch], cache=self.cache)
            self.num_steps += 1
            self._advance(batch, logits=logits)

    def _take_weights(self) -> None:
        while self._swaps:
            swap = self._swaps.popleft()
            if swap.future.set_running_or_notify_cancel():
                self.model, self.version = swap.model, swap.version
                self.cache.clear()
                swap.future.set_result(None)

    def _drop_cancelled(self) -> None:
        self._waiting = [request for request in self._waiting if not request.future.cancelled()]
        for request in [request for request in self._running if request.future.cancelled()]:
            self._leave(request)

    def _admit(self) -> None:
        """Move waiting requests into the batch while it has room. Requests that benefit from a prefix that another
        request will compute continue to wait.

        Sessions with a cached sequence go first. Otherwise new sessions would take their slots.
        """
        kept = self.cache.sessions()
        held_back = []
        for request in sorted(self._waiting, key=lambda request: request.session not in kept):
            if len(self._running) == self.max_batch or self._prefix_is_coming(request):
                held_back.append(request)
            else:
                self._join(request)
        self._waiting = held_back

    def _prefix_is_coming(self, request: _Request) -> bool:
        """Whether a running request will compute a large part of the prompt of this request.

        The votes of one judgment arrive together and share a prompt: one request computes it, the others copy it.
        """
        ids = request.prompt_ids[:-1]
        for other in self._running:
            computed, promised = other.slot.length, len(other.prompt_ids)
            if computed < promised and other.salt == request.salt:
                gain = other.slot.common_prefix(ids, length=promised) - computed
                num_cached = self.cache.longest_prefix(request.prompt_ids, salt=request.salt)[0]
                if gain >= SHARED_PREFIX_TOKENS and gain + computed > num_cached:
                    return True
        return False

    def _join(self, request: _Request) -> None:
        request.slot = self.cache.acquire(request.prompt_ids, session=request.session, salt=request.salt)
        request.slot.token_ids[: len(request.prompt_ids)] = request.prompt_ids
        request.num_cached = request.slot.length
        self._running.append(request)

    def _schedule(self) -> list[tuple[_Request, Span]]:
        """Return the span of each request in this step: decoding requests first, then chunks of prompts by age."""
        decoding, prefilling, room = [], [], PREFILL_TOKENS
        for request in self._running:
            slot = request.slot
            end = request.num_tokens
            if end - slot.length > 1:
                end = min(end, slot.length + room)
                room -= end - slot.length
            if end > slot.length:
                span = Span(slot=slot.index, start=slot.length, token_ids=slot.token_ids[slot.length : end].tolist())
                (decoding if len(span.token_ids) == 1 else prefilling).append((request, span))
        return decoding + prefilling

    def _advance(self, batch: Sequence[tuple[_Request, Span]], *, logits: np.ndarray) -> None:
        """Sample the next token of each request whose sequence has been computed to its end."""
        logprobs = log_softmax(logits)
        for (request, span), row in zip(batch, logprobs, strict=True):
            request.slot.length += len(span.token_ids)
            if request.slot.length == request.num_tokens:
                self._append(request, choose_token(row, sampling=request.sampling, rng=request.rng), logprobs=row)

    def _append(self, request: _Request, token_id: int, *, logprobs: np.ndarray) -> None:
        if not request.token_ids:
            request.token_logprobs = {i: float(logprobs[i]) for i in request.sampling.logprob_token_ids}
        request.token_ids.append(token_id)
        if request.sampling.logprobs:
            request.logprobs.append(float(logprobs[token_id]))
        if token_id in self.eos_token_ids:
            return self._finish(request, finish_reason="stop")
        num_before = len(request.written)
        request.written += self.tokenizer.bytes_of.get(token_id, b"")
        found = find_stop(request.written, stop=request.sampling.stop, num_seen=num_before)
        if found is not None:
            return self._finish(request, finish_reason="stop", stop=found)
        if len(request.token_ids) >= request.sampling.max_tokens or request.num_tokens == self.context_tokens:
            return self._finish(request, finish_reason="length")
        if is_repeated(request.token_ids):
            return self._finish(request, finish_reason="repetition")
        request.slot.token_ids[request.num_tokens - 1] = token_id
        return None

    def _finish(
        self,
        request: _Request,
        *,
        finish_reason: Literal["stop", "length", "repetition"],
        stop: StopMatch | None = None,
    ) -> None:
        self._leave(request)
        written = request.written if stop is None else request.written[: stop.end]
        completion = Completion(
            text=written.decode(errors="replace"),
            token_ids=tuple(request.token_ids),
            logprobs=tuple(request.logprobs),
            finish_reason=finish_reason,
            stop=stop.text if stop else None,
            token_logprobs=request.token_logprobs,
            num_cached=request.num_cached,
        )
        if request.future.set_running_or_notify_cancel():
            request.future.set_result(completion)

    def _leave(self, request: _Request) -> None:
        self._running.remove(request)
        request.slot.busy = False


# ------------------------------------------------------------------------------------------------------------- sampling


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Return the logarithm of the softmax over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def choose_token(logprobs: np.ndarray, *, sampling: Sampling, rng: np.random.Generator | None) -> int:
    """Choose the next id from log-probabilities [vocab]: the most probable one without `rng`, otherwise a sample."""
    if sampling.allowed_token_ids is not None:
        allowed = np.array(sampling.allowed_token_ids)
        return int(allowed[_draw(logprobs[allowed], temperature=sampling.temperature, top_p=sampling.top_p, rng=rng)])
    return _draw(logprobs, temperature=sampling.temperature, top_p=sampling.top_p, rng=rng)


def _draw(logprobs: np.ndarray, *, temperature: float, top_p: float, rng: np.random.Generator | None) -> int:
    if rng is None:
        return int(logprobs.argmax())
    weights = np.exp((logprobs - logprobs.max()) / temperature)
    if top_p < 1:
        order = np.argsort(-weights, kind="stable")
        beyond = weights[order].cumsum() - weights[order] >= top_p * weights.sum()
        beyond[0] = False  # always keep the most probable token
        weights[order[beyond]] = 0
    cumulative = weights.cumsum(dtype=np.float64)
    return int(cumulative.searchsorted(rng.random() * cumulative[-1], side="right"))


@asynccontextmanager
async def _open(address: str, options: EngineOptions) -> AsyncIterator[Model]:
    """Open a checkpoint folder. Empty address: the bundled judge."""
    folder = checkpoint_folder(Path(address) if address else None)
    profile = load_profile(checkpoint_folder(options.profile or folder)).rendered_with(options.chat_template_kwargs)
    engine = EmbeddedEngine.load(folder, chat_template_kwargs=profile.chat_template_kwargs)
    try:
        profile = await profile.resolved_by(engine.tokenizer)
        yield Model(
            engine=engine, profile=profile, weights=WeightsLock(version=fingerprint(folder)), **identity_of(folder)
        )
    finally:
        engine.close()


ENGINE = EngineKind(name="embedded", address="[PATH of a checkpoint]", open=_open)
