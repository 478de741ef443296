"""Small Qwen3 models without torch or a GPU: continuous batching in NumPy, up to 20M parameters.

It is the one place where inference is written here; anything larger belongs to vLLM. Three parts, read in this order:
`Qwen3` computes logits, `KVCache` keeps what was computed, `EmbeddedEngine` decides what is computed next.

The forward is written against the functions that NumPy and torch spell alike (`xp`), so it runs on either; what comes
in from outside and what is sampled is always NumPy. A step takes a flat row of tokens from many sequences: all that
decode (one token each) and some that prefill (a chunk each); only attention knows which token belongs to whom.

OpenBLAS with two threads is ten times slower than with one on matrices this small, because its threads spin; the loop
therefore sets the process to one.
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
from tirjudge.engines.tokenization import LocalTokenizer, StopMatch, find_stop
from tirjudge.errors import CheckpointError, EngineUnavailable, PromptTooLong
from tirjudge.model import EngineKind, EngineOptions, Model, checkpoint_folder, fingerprint, identity_of
from tirjudge.profile import load_profile
from tirjudge.request_context import origin
from tirjudge.types import Completion, Sampling
from tirjudge.weights_lock import WeightsLock

MAX_BATCH = 16

CACHE_TOKENS = 65_536

PREFILL_TOKENS = 256
"""Most prompt tokens computed in one step, so that a long prompt holds up the others for tens of milliseconds only."""

SHARED_PREFIX_TOKENS = 32
"""A request waits for another that is about to compute this many tokens of its prompt or more."""

GREEDY_BELOW = 1e-5
"""A lower temperature is greedy, as in vLLM: float32 cannot divide by it."""

_log = logging.getLogger(__name__)

Array = Any
"""A NumPy array or a torch tensor."""


# ------------------------------------------------------------------------------------------------------------- the model


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """Where the arrays live."""

    xp: Any = np
    """The module, `numpy` or `torch`."""
    device: str = "cpu"

    @classmethod
    def parse(cls, name: str) -> Backend:
        """`numpy`, `torch`, or a torch device such as `torch:cuda:1`."""
        library, _, device = name.partition(":")
        if library == "numpy" and not device:
            return cls()
        if library != "torch":
            raise ValueError(f"backend: {name!r} given, it is 'numpy', 'torch', or a torch device such as 'torch:cuda'")
        import torch

        return cls(xp=torch, device=device or "cpu")

    def floats(self, values: Any) -> Array:
        if self.xp is np and hasattr(values, "detach"):  # a torch tensor of any type, on any device
            values = values.detach().float().cpu().numpy()
        return self.xp.asarray(values, dtype=self.xp.float32, device=self.device)

    def ids(self, values: Any) -> Array:
        return self.xp.asarray(values, dtype=self.xp.int64, device=self.device)

    def zeros(self, shape: tuple[int, ...]) -> Array:
        return self.xp.zeros(shape, dtype=self.xp.float32, device=self.device)

    def to_numpy(self, array: Array) -> np.ndarray:
        return array if self.xp is np else array.cpu().numpy()

    def computing(self) -> AbstractContextManager[Any]:
        """What the forward runs inside: nothing for NumPy; torch keeps no gradients."""
        return nullcontext() if self.xp is np else self.xp.inference_mode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Weights of one layer, fused and laid out as [in, out]. The two RMSNorm weights are multiplied into what follows."""

    qkv: Array
    """[hidden, (heads + 2 kv_heads) * head_dim]"""
    qk_norm: Array
    """[heads + kv_heads, head_dim]; the rows of the queries carry the attention's scale, head_dim ** -0.5."""
    out: Array
    """[heads * head_dim, hidden]"""
    gate_up: Array
    """[hidden, 2 * intermediate]"""
    down: Array
    """[intermediate, hidden]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Consecutive new tokens of one sequence in a step: where it is kept, and where in it they stand."""

    slot: int
    start: int
    token_ids: Sequence[int]


class Qwen3:
    """The decoder, in float32.

    Args:
        weights: name in the checkpoint -> array; NumPy arrays, or torch tensors for a torch backend.
        config: its `config.json`.
        backend: where to compute.

    Raises:
        CheckpointError: weights are missing, or have other shapes than the config says.
    """

    def __init__(self, weights: Mapping[str, Array], *, config: Qwen3Config, backend: Backend | None = None) -> None:
        config.check(weights)
        self.config = config
        self.backend = backend or Backend()
        if self.backend.xp is np:
            threadpool_limits(limits=1, user_api="blas")  # for good: engines may begin and end in any order
        with self.backend.computing():
            read = {name.removeprefix("model."): self.backend.floats(array) for name, array in weights.items()}
            self.embedding = read["embed_tokens.weight"] * 1.0  # a copy: whoever trains goes on with the original
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
        """cos and sin, [context, 1, head_dim]; sin with the sign that swapped halves need."""
        config = self.config
        frequencies = config.rope_theta ** -(np.arange(0, config.head_dim, 2) / config.head_dim)
        angles = np.arange(config.context_tokens)[:, None, None] * frequencies
        cos = np.concatenate([np.cos(angles), np.cos(angles)], axis=-1)
        sin = np.concatenate([-np.sin(angles), np.sin(angles)], axis=-1)
        return self.backend.floats(cos.astype(np.float32)), self.backend.floats(sin.astype(np.float32))

    def forward(self, spans: Sequence[Span], *, cache: KVCache) -> np.ndarray:
        """Logits after the last token of each span, [spans, vocab]; the spans' keys and values are in the cache then.

        Spans of one token come first, and no slot comes twice.
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
        """Rotated queries [tokens, heads, head_dim]; rotated keys and values [tokens, kv_heads, head_dim]."""
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
        """All spans of one token as one group, every longer one by itself."""
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
    """Spans of equal length, attended together and padded to the longest sequence among them."""

    xp: Any
    rows: slice
    """Their tokens in the step."""
    slots: Array
    """[batch]"""
    num_keys: int
    """Length of the longest sequence, the new tokens included."""
    mask: Array
    """[batch, 1, new, 1, num_keys]: 0 where a query may look, -inf elsewhere."""

    @classmethod
    def of(cls, spans: Sequence[Span], *, first: int, backend: Backend) -> _AttentionGroup:
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
        """q [tokens, heads, head_dim], keys and values [slots, kv_heads, context, head_dim] -> [rows, heads * head_dim]."""
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
    """Room for one sequence."""

    index: int
    token_ids: np.ndarray
    """[context]; those before `length` have their keys and values in the cache."""
    length: int = 0
    session: str | None = None
    """Whose sequence it is; None: never used."""
    salt: str | None = None
    """As in `tirjudge.request_context.Origin.cache_salt`."""
    last_used: int = 0
    """Count of acquisitions at its own last one."""
    busy: bool = False

    def common_prefix(self, token_ids: np.ndarray, *, length: int | None = None) -> int:
        """How many of `token_ids` its first `length` begin with; None: those that are computed."""
        size = min(self.length if length is None else length, len(token_ids))
        different = self.token_ids[:size] != token_ids[:size]
        return int(different.argmax()) if different.any() else size


class KVCache:
    """Keys and values of a fixed number of sequences, [slots, layers, kv_heads, context, head_dim] each.

    Slots are used again, never added, so memory is bounded; the system gives it only as slots are first used.
    """

    def __init__(self, model: Qwen3, *, num_slots: int, context_tokens: int) -> None:
        config = model.config
        shape = (num_slots, config.num_layers, config.num_kv_heads, context_tokens, config.head_dim)
        # Attention reads padding beyond a sequence and multiplies it by 0, so it has to be finite.
        self.keys, self.values = model.backend.zeros(shape), model.backend.zeros(shape)
        self.slots = [BatchSlot(index=i, token_ids=np.zeros(context_tokens, dtype=np.int64)) for i in range(num_slots)]
        self._num_acquired = 0

    def clear(self) -> None:
        """Forget every sequence; none may be busy."""
        for slot in self.slots:
            slot.length, slot.session = 0, None

    def sessions(self) -> set[str | None]:
        return {slot.session for slot in self.slots}

    def longest_prefix(self, token_ids: np.ndarray, *, salt: str | None) -> tuple[int, BatchSlot]:
        """How many of the ids are computed already for this salt, and where; the last one never counts, its logits are
        wanted."""
        found = [(slot.common_prefix(token_ids[:-1]) if slot.salt == salt else 0, slot) for slot in self.slots]
        return max(found, key=lambda pair: pair[0])

    def acquire(self, token_ids: np.ndarray, *, session: str, salt: str | None) -> BatchSlot:
        """A slot that holds as much of the ids as any slot does: the session's own, or the one longest unused."""
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
    """One turn on its way."""

    prompt_ids: np.ndarray
    sampling: Sampling
    session: str
    salt: str | None
    future: Future[Completion]
    rng: np.random.Generator | None
    """None: greedy."""
    slot: BatchSlot = field(init=False)
    """Set when it joins the batch."""
    num_cached: int = 0
    token_ids: list[int] = field(default_factory=list)
    """Generated."""
    logprobs: list[float] = field(default_factory=list)
    token_logprobs: dict[int, float] = field(default_factory=dict)
    written: bytearray = field(default_factory=bytearray)
    """Bytes of the generated text."""

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_ids) + len(self.token_ids)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Swap:
    """Other weights on their way in."""

    model: Qwen3
    version: str | int
    future: Future[None]


class EmbeddedEngine(BaseEngine):
    """Serves many rollouts at once on one thread of its own; requests join and leave the batch between steps.

    Args:
        model: what computes.
        tokenizer: of the same checkpoint.
        eos_token_ids: ids that end a turn. They are kept in the ids of a completion and hidden from its text.
        max_batch: most requests in one step.
        cache_tokens: memory of the cache, in tokens; split into slots of the model's context, at least `max_batch`.
        context_tokens: longest sequence; None: the model's own.

    Attributes:
        version: of the weights, as `swap` was told; None: those that it began with.
        num_steps: forward passes since the start.
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
        self._cache = KVCache(model, num_slots=num_slots, context_tokens=self.context_tokens)
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
    ) -> EmbeddedEngine:
        """From a Hugging Face checkpoint folder.

        Args:
            path: holds config.json, model.safetensors (float32, float16 or bfloat16) and tokenizer.json.
            backend: `numpy`, `torch`, or a torch device such as `torch:cuda`.
            max_batch, cache_tokens, context_tokens: as in the constructor.

        Raises:
            CheckpointError: something is missing, or the model is not one for this engine.
        """
        config = Qwen3Config.parse(read_json(path / "config.json"), source=str(path))
        model = Qwen3(read_safetensors(path / "model.safetensors"), config=config, backend=Backend.parse(backend))
        return cls(
            model,
            tokenizer=LocalTokenizer.load(path),
            eos_token_ids=read_eos_token_ids(path),
            max_batch=max_batch,
            cache_tokens=cache_tokens,
            context_tokens=context_tokens,
        )

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        """One turn. Cancelling the caller takes the request out of the batch.

        Raises:
            PromptTooLong: the ids leave no room in the context.
            EngineUnavailable: the engine is closed, or failed.
        """
        salt = origin().cache_salt
        sampled = await self.sample(token_ids, sampling=sampling, session=session, salt=salt)
        return self.tokenizer.fit_ids_to_text(sampled)

    async def sample(
        self, token_ids: Sequence[int], *, sampling: Sampling, session: str, salt: str | None = None
    ) -> Completion:
        """As `generate`, but the ids keep a last token that spills past the stop string, as vLLM's do.

        Args:
            token_ids, sampling, session: as in `generate`.
            salt: computed prefixes are shared among those who have the same one.
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
            raise PromptTooLong(f"the sequence has {len(ids)} tokens; the model takes 1 to {self.context_tokens - 1}")
        if ids.min() < 0 or ids.max() >= self.model.config.vocab_size:
            raise ValueError(f"token_ids: outside of 0 to {self.model.config.vocab_size - 1}")
        return _Request(
            prompt_ids=ids,
            sampling=sampling,
            session=session,
            salt=salt,
            future=Future(),
            rng=np.random.default_rng(sampling.seed) if sampling.temperature >= GREEDY_BELOW else None,
        )

    async def swap(self, weights: Mapping[str, Array], *, version: str | int) -> None:
        """Go on with other weights of the same model. Turns that run end with those that they began with, turns that come
        wait, and what the cache holds is dropped. A rollout has several turns: `tirjudge.weights_lock` keeps those together.

        Args:
            weights: name in the checkpoint -> array of NumPy or torch; copied.
            version: what they are called from now on.

        Raises:
            CheckpointError: they are of another model, or not all of them are numbers; nothing has changed.
            EngineUnavailable: the engine is closed, or failed.
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
        """As `swap`, with the weights of a checkpoint folder.

        Raises:
            CheckpointError, EngineUnavailable: as `swap`.
        """
        config = Qwen3Config.parse(read_json(checkpoint / "config.json"), source=str(checkpoint))
        if config != self.model.config:
            raise CheckpointError(f"{checkpoint}: a model of other sizes than the one that is served")
        weights = await asyncio.to_thread(read_safetensors, checkpoint / "model.safetensors")
        await self.swap(weights, version=version)

    def _model_of(self, weights: Mapping[str, Array]) -> Qwen3:
        backend = self.model.backend
        for name, array in weights.items():
            if not bool(backend.xp.isfinite(backend.floats(array)).all()):
                raise CheckpointError(f"weights: {name} holds values that are no numbers")
        return Qwen3(weights, config=self.model.config, backend=backend)

    def close(self) -> None:
        """End the thread; whoever still waits gets `EngineUnavailable`."""
        self._end("the embedded engine was closed")
        self._thread.join()

    @property
    def ended(self) -> str | None:
        """Why it generates no more; None while it does."""
        return self._ended

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
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
        """Sleeps until there is some; False when the engine is to end."""
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
            logits = self.model.forward([span for _, span in batch], cache=self._cache)
            self.num_steps += 1
            self._advance(batch, logits=logits)

    def _take_weights(self) -> None:
        while self._swaps:
            swap = self._swaps.popleft()
            if swap.future.set_running_or_notify_cancel():
                self.model, self.version = swap.model, swap.version
                self._cache.clear()
                swap.future.set_result(None)

    def _drop_cancelled(self) -> None:
        self._waiting = [request for request in self._waiting if not request.future.cancelled()]
        for request in [request for request in self._running if request.future.cancelled()]:
            self._leave(request)

    def _admit(self) -> None:
        """Waiting requests join while there is room, except those that gain by waiting for a prefix.

        Turns of a session that is in the cache come first: behind new sessions they would find it taken from them.
        """
        kept = self._cache.sessions()
        held_back = []
        for request in sorted(self._waiting, key=lambda request: request.session not in kept):
            if len(self._running) == self.max_batch or self._prefix_is_coming(request):
                held_back.append(request)
            else:
                self._join(request)
        self._waiting = held_back

    def _prefix_is_coming(self, request: _Request) -> bool:
        """Whether a request in the batch is about to compute a good part of this one's prompt.

        Votes and orders of one judgment arrive together with the same prompt: one computes it, the others copy it.
        """
        ids = request.prompt_ids[:-1]
        for other in self._running:
            computed, promised = other.slot.length, len(other.prompt_ids)
            if computed < promised and other.salt == request.salt:
                gain = other.slot.common_prefix(ids, length=promised) - computed
                num_cached = self._cache.longest_prefix(request.prompt_ids, salt=request.salt)[0]
                if gain >= SHARED_PREFIX_TOKENS and gain + computed > num_cached:
                    return True
        return False

    def _join(self, request: _Request) -> None:
        request.slot = self._cache.acquire(request.prompt_ids, session=request.session, salt=request.salt)
        request.slot.token_ids[: len(request.prompt_ids)] = request.prompt_ids
        request.num_cached = request.slot.length
        self._running.append(request)

    def _schedule(self) -> list[tuple[_Request, Span]]:
        """What each request computes in this step: those that decode one token, then chunks of prompts by age."""
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
        """Each request whose sequence is computed to its end gets its next token."""
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
        request.slot.token_ids[request.num_tokens - 1] = token_id
        return None

    def _finish(
        self, request: _Request, *, finish_reason: Literal["stop", "length"], stop: StopMatch | None = None
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
    """Over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def choose_token(logprobs: np.ndarray, *, sampling: Sampling, rng: np.random.Generator | None) -> int:
    """The next id from log-probabilities [vocab]; greedy without `rng`, else one draw of it."""
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
        beyond[0] = False  # the likeliest always stays
        weights[order[beyond]] = 0
    cumulative = weights.cumsum(dtype=np.float64)
    return int(cumulative.searchsorted(rng.random() * cumulative[-1], side="right"))


@asynccontextmanager
async def _open(address: str, options: EngineOptions) -> AsyncIterator[Model]:
    """A checkpoint folder; without an address the bundled judge."""
    folder = checkpoint_folder(Path(address) if address else None)
    profile = load_profile(checkpoint_folder(options.profile or folder))
    engine = EmbeddedEngine.load(folder)
    try:
        yield Model(
            engine=engine, profile=profile, weights=WeightsLock(version=fingerprint(folder)), **identity_of(folder)
        )
    finally:
        engine.close()


ENGINE = EngineKind(name="embedded", address="[PATH of a checkpoint]", open=_open)
