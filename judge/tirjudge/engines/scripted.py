"""Test double of an engine, which returns scripted texts.

Its tokens are the bytes of the text, so that lengths, masks and prefixes in a test can be counted by eye.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tirjudge.control_tokens import FAMILIES, ControlTokens
from tirjudge.engines.base import BaseEngine, EngineFacts, RawScore
from tirjudge.errors import EngineUnavailable
from tirjudge.prompt_messages import Prompt
from tirjudge.types import ChatMessage, Completion, Sampling, prompt_text

END_OF_TURN = 256
"""Id of the end-of-turn token. Ids 0 to 255 are bytes."""


class ByteTokenizer:
    """Tokenizer with one id per UTF-8 byte."""

    async def encode(self, text: str) -> list[int]:
        return list(text.encode())

    async def encode_prompt(self, prompt: Prompt) -> list[int]:
        """Encode the text of a prompt; of messages, each text after its role in brackets."""
        if isinstance(prompt, str):
            return list(prompt.encode())
        return list("\n".join(f"[{message.role}]\n{message.content}" for message in prompt).encode())

    async def chat_template_kwargs(self) -> None:
        return None

    async def control_tokens(self, texts: Sequence[str] = ()) -> ControlTokens:
        return FAMILIES

    async def tokens_of(self, texts: Collection[str]) -> dict[str, Sequence[int]]:
        return {text: tuple(text.encode()) if len(text.encode()) == 1 else () for text in texts}

    async def token_bytes(self, token_ids: Sequence[int]) -> list[bytes | None]:
        return [bytes([i]) if i < END_OF_TURN else b"" for i in token_ids]

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(i for i in token_ids if i < END_OF_TURN).decode(errors="replace")


class ScriptedEngine(BaseEngine):
    """Engine that returns scripted texts, each cut after the first stop string like the output of a real engine.

    Args:
        script: one text per turn, in the order of the requests of all rollouts; or a function from the sequence so far,
            as text, to the next text.
        label_probs: text of a label's first token -> probability, the result of every constrained read. Missing tokens
            get 1e-6. Or a function from the sequence to such a mapping.
        delay_s: duration of each generated text, in seconds.
        read_delay_s: duration of each constrained read, in seconds.

    Attributes:
        calls: the (token_ids, sampling, session) of every request so far.
    """

    eos_token_ids = frozenset({END_OF_TURN})

    def __init__(
        self,
        script: Iterable[str] | Callable[[str], str],
        *,
        label_probs: Mapping[str, float] | Callable[[str], Mapping[str, float]] | None = None,
        delay_s: float = 0.0,
        read_delay_s: float = 0.0,
    ) -> None:
        self.tokenizer = ByteTokenizer()
        self.calls: list[tuple[tuple[int, ...], Sampling, str]] = []
        if callable(script):
            self._next_text = script
        else:
            texts = iter(script)
            self._next_text = lambda sequence: next(texts)
        self._delay_s = delay_s
        self._read_delay_s = read_delay_s
        self._label_probs = label_probs if callable(label_probs) else lambda sequence: label_probs or {}

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        """Return the next text. A constrained read is answered from `label_probs` and consumes no text.

        Raises:
            EngineUnavailable: all texts have been used.
        """
        self.calls.append((tuple(token_ids), sampling, session))
        sequence = self.tokenizer.decode(token_ids)
        if delay_s := self._delay_s if sampling.allowed_token_ids is None else self._read_delay_s:
            await asyncio.sleep(delay_s)
        if sampling.allowed_token_ids is not None:
            return self._read(sampling.allowed_token_ids, probabilities=self._label_probs(sequence))
        try:
            text = self._next_text(sequence)
        except StopIteration:
            raise EngineUnavailable("the script has no more texts") from None
        ends = [(text.index(stop) + len(stop), stop) for stop in sampling.stop if stop in text]
        end, stop = min(ends, default=(len(text), None))
        ids = list(text[:end].encode()) + ([] if stop else [END_OF_TURN])
        finish_reason = "stop"
        if len(ids) > sampling.max_tokens:
            ids, stop, finish_reason = ids[: sampling.max_tokens], None, "length"
        return Completion(
            text=self.tokenizer.decode(ids),
            token_ids=tuple(ids),
            logprobs=tuple(-0.5 for _ in ids) if sampling.logprobs else (),
            finish_reason=finish_reason,
            stop=stop,
        )

    def _read(self, allowed: Sequence[int], *, probabilities: Mapping[str, float]) -> Completion:
        logprobs = {i: math.log(probabilities.get(chr(i), 1e-6)) for i in allowed}
        best = max(allowed, key=lambda i: logprobs[i])
        return Completion(
            text=chr(best),
            token_ids=(best,),
            logprobs=(logprobs[best],),
            finish_reason="length",
            token_logprobs=logprobs,
        )


class ScriptedScalarEngine(BaseEngine):
    """Scalar reward model with scripted scores.

    Args:
        script: function from the prompt, as text, and the response to the score.

    Attributes:
        calls: the (prompt, response) of every score so far.
    """

    facts = EngineFacts(generates=False, scores=True, constrains=False)
    eos_token_ids: frozenset[int] = frozenset()

    def __init__(self, script: Callable[[str, str], float]) -> None:
        self.tokenizer = ByteTokenizer()
        self.calls: list[tuple[str, str]] = []
        self._script = script

    async def score(self, prompt: str | Sequence[ChatMessage], response: str) -> RawScore:
        shown = prompt_text(prompt)
        self.calls.append((shown, response))
        return RawScore(value=self._script(shown, response), num_tokens=len((shown + response).encode()))
