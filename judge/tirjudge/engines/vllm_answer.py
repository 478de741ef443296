"""What vLLM generated, as a completion of ours; the same whether it came over HTTP or from this process.

- vLLM cuts text at the end of a stop string and keeps the whole last token, so the ids may say more than the text; here
  they are made equal.
- Special tokens are shown, so that every tag a model writes is in the text; the end-of-turn token then is too, and is
  taken off here.
- A checkpoint's `generation_config.json` stands in for what a request leaves out, so nothing is left out.
- On a CPU vLLM packs the output layer once. Weights that are exchanged reach the embedding that it is tied to, and not the
  packed copy (seen with vLLM 0.32): such an exchange is refused.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError, safe_open

from tirjudge.engines.checkpoint import read_json
from tirjudge.errors import CheckpointError, EngineUnavailable
from tirjudge.types import Completion, Sampling

REPETITION: Mapping[str, int] = {"max_pattern_size": 32, "min_pattern_size": 1, "min_count": 64}
"""A turn ends that has written the same 1 to 32 tokens 64 times in a row: only a model that is lost does that, and programs
with long lists or tables in them do not."""


TAIL_IDS = 8
"""So many ids at the end of a turn are held against its text: more than vLLM generates in one step, speculation included."""

MAX_SPILLED = TAIL_IDS
"""Up to so many ids at the end are dropped one by one, where their text goes beyond that of the turn."""


class Texts(Protocol):
    """Text to ids and back, as the served model reads it."""

    async def encode(self, text: str) -> list[int]: ...

    async def decode(self, token_ids: Sequence[int]) -> str:
        """Special tokens included."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class VLLMAnswer:
    """One generated sequence, in vLLM's words."""

    text: str
    token_ids: Sequence[int]
    logprobs: Sequence[float]
    """One an id; none where they were not asked for."""
    finish_reason: str | None
    stop_reason: int | str | None
    """The matched stop string, or the id that ended the turn."""
    token_logprobs: Mapping[int, float] = field(default_factory=dict)
    """The answer to `Sampling.logprob_token_ids`."""
    num_cached: int = 0


class Reader:
    """Makes completions of answers, and learns which ids end a turn: vLLM names none beforehand.

    Args:
        texts: asked in the rare cases where ids and text differ.
        source: what generates, for errors.
    """

    def __init__(self, texts: Texts, *, source: str) -> None:
        self._texts = texts
        self._source = source
        self._texts_of: dict[int, str] = {}
        """Text of each id that stood near the end of a turn."""
        self._eos_ids: set[int] = set()

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Ids that were seen to end a turn."""
        return frozenset(self._eos_ids)

    async def read(self, answer: VLLMAnswer) -> Completion:
        """
        Raises:
            EngineUnavailable: generation did not end by itself.
            TypeError: what is there is no completion.
        """
        text, ids, finish_reason, stop = answer.text, list(answer.token_ids), answer.finish_reason, None
        if finish_reason not in ("stop", "length", "repetition"):
            raise EngineUnavailable(f"{self._source}: generation ended with {finish_reason!r}")
        _check_kinds(text, ids)
        _check_logprobs([*answer.logprobs, *answer.token_logprobs.values()])
        num_appended = 0
        if finish_reason == "stop" and isinstance(answer.stop_reason, str):
            stop = answer.stop_reason
            tail = await asyncio.gather(*map(self._text_of, ids[-TAIL_IDS:]))
            if not _ends_with(text, "".join(tail)):
                ids, num_appended = await self._fit_ids_to_text(ids, text=text)
        elif finish_reason == "stop":
            text = text.removesuffix(await self._text_of(ids[-1]))
            self._eos_ids.add(ids[-1])
        return Completion(
            text=text,
            token_ids=tuple(ids),
            logprobs=_fitted(answer.logprobs, num_ids=len(ids), num_appended=num_appended),
            finish_reason=finish_reason,  # type: ignore[arg-type]
            stop=stop,
            num_appended=num_appended,
            token_logprobs=dict(answer.token_logprobs),
            num_cached=answer.num_cached,
        )

    async def _text_of(self, token_id: int) -> str:
        if token_id not in self._texts_of:
            self._texts_of[token_id] = await self._texts.decode([token_id])
        return self._texts_of[token_id]

    async def _fit_ids_to_text(self, token_ids: list[int], *, text: str) -> tuple[list[int], int]:
        """Ids that decode to the text, and how many of them, at the end, were encoded anew.

        A last token that spills past the text is dropped, with those that a character it completes began in.
        """
        kept, num_dropped = list(token_ids), 0
        head = await self._texts.decode(kept)
        if head == text:
            return kept, 0
        while not (text.startswith(head) and num_dropped):
            # One more at first, then twice as many: where ids and text differ early, few texts are asked for.
            num_dropped += 1 if num_dropped < MAX_SPILLED else num_dropped
            kept = token_ids[: max(0, len(token_ids) - num_dropped)]
            head = await self._texts.decode(kept)
        appended = await self._texts.encode(text[len(head) :])
        return kept + appended, len(appended)


def _ends_with(text: str, tail: str) -> bool:
    """Whether the last tokens are certainly in a text that was cut at a stop string.

    They are if the text ends with them, and with no beginning of them: then nothing of them can have spilled over.
    """
    return [n for n in range(1, len(tail) + 1) if text.endswith(tail[:n])] == [len(tail)]


def _fitted(logprobs: Sequence[float], *, num_ids: int, num_appended: int) -> tuple[float, ...]:
    if not logprobs:
        return ()
    return (*logprobs[: num_ids - num_appended], *(0.0 for _ in range(num_appended)))


def check_reload(checkpoint: Path, *, device: str) -> None:
    """
    Args:
        checkpoint: folder whose weights vLLM is to go on with.
        device: that vLLM computes on.

    Raises:
        CheckpointError: vLLM would go on with half of them.
    """
    if device.startswith("cpu") and _is_tied(checkpoint):
        raise CheckpointError(
            f"{checkpoint}: its output layer is tied to its embedding, and vLLM on a CPU would keep the old output layer; "
            "starting vLLM anew would do"
        )


def _is_tied(checkpoint: Path) -> bool:
    """Whether its output layer is its embedding. Some families do not say so; then their weights lack the layer."""
    config = checkpoint / "config.json"
    said = read_json(config).get("tie_word_embeddings") if config.exists() else None
    if said is not None:
        return bool(said)
    weights = checkpoint / "model.safetensors"
    index = checkpoint / "model.safetensors.index.json"
    try:
        if index.exists():
            return "lm_head.weight" not in read_json(index)["weight_map"]
        if not weights.exists():
            return False
        with safe_open(weights, framework="numpy") as stored:
            return "lm_head.weight" not in stored.keys()  # noqa: SIM118
    except (SafetensorError, LookupError, TypeError) as error:
        raise CheckpointError(f"{checkpoint}: its weights cannot be read: {error!r}") from error


def _check_kinds(text: object, token_ids: Sequence[object]) -> None:
    if not isinstance(text, str):
        raise TypeError(f"text is {text!r}")
    for token_id in token_ids:
        if not isinstance(token_id, int) or token_id < 0:
            raise TypeError(f"a token id is {token_id!r}")


def _check_logprobs(logprobs: Sequence[object]) -> None:
    """No number is no logprob, and neither is NaN, which JSON of Python can carry and every comparison would let pass."""
    for logprob in logprobs:
        if not isinstance(logprob, int | float) or math.isnan(logprob):
            raise TypeError(f"a logprob is {logprob!r}")


def sampling_fields(sampling: Sampling, *, room: int) -> dict[str, Any]:
    """How a turn is sampled, in the words that vLLM's requests and its `SamplingParams` share.

    Args:
        sampling: of the turn.
        room: tokens that the model's context has left.
    """
    fields: dict[str, Any] = {
        "n": 1,
        "max_tokens": min(sampling.max_tokens, room),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_detection": dict(REPETITION),
        "stop": list(sampling.stop),
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
    }
    if sampling.logprobs or sampling.logprob_token_ids:
        fields["logprobs"] = 0
    if sampling.seed is not None:
        fields["seed"] = sampling.seed
    if sampling.allowed_token_ids is not None:
        fields["allowed_token_ids"] = list(sampling.allowed_token_ids)
    if sampling.logprob_token_ids:
        fields["logprob_token_ids"] = list(sampling.logprob_token_ids)
    return fields
