"""What the doctor learns about a model besides its accuracy: template, special tokens, stop strings, context, cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tirjudge.control_tokens import FAMILIES
from tirjudge.engines.base import Engine
from tirjudge.judge import Judge
from tirjudge.thoughts import thinking_after
from tirjudge.types import MODEL_MODES, JudgeRequest, Mode, Sampling
from tirjudge_harness.doctor.observing import ObservedTurn

PROBE_TEXT = "Is 7 more than 5?"
"""User message of the prompt whose end is examined."""

PROBE_TOKENS = 64
"""Maximum number of tokens that are generated after the repeated prompt. A chat endpoint gets a quarter of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateState:
    """The chat template of a model. None of a field: not known."""

    knows_thinking: bool | None
    """Whether the template has the option `enable_thinking`."""
    options: dict[str, Any] | None
    """The options that are given to the template (`chat_template_kwargs`)."""
    thinking: str | None
    """Whether a prompt lets the model think: `off`, `possible` or `open`, as in `tirjudge.thoughts.Thinking`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialTokens:
    """The strings that are broken in judged texts: special tokens, and tags of the chat template."""

    number: int
    source: Literal["tokenizer", "families"]
    """`tokenizer`: the special tokens of the served tokenizer. `families`: the list of all known model families, because
    the tokenizer is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopString:
    """One stop string of the format over all turns in which it was asked for."""

    text: str
    turns: int
    """Number of turns in which it was asked for."""
    matched: int
    """Number of turns that it ended."""
    missed: int
    """Number of turns that it did not end although the model wrote it, or opened its tag and ended the turn."""

    @property
    def is_broken(self) -> bool:
        """Whether it never matched although it could have."""
        return self.missed > 0 and self.matched == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCache:
    """The second of two equal prompts."""

    prompt_tokens: int | None
    """Length of the prompt. None: the endpoint does not report it."""
    cached_tokens: int | None
    """Number of its tokens that the engine took from its cache. None: the endpoint does not report it."""


async def template_state(engine: Engine) -> TemplateState:
    """Return the state of the chat template, as far as the tokenizer of the engine tells it.

    Raises:
        EngineUnavailable: the engine cannot be reached.
    """
    template = getattr(engine.tokenizer, "template", None)
    asks = getattr(engine.tokenizer, "chat_template_kwargs", None)
    given: Mapping[str, Any] | None = None if asks is None else await asks()
    options = None if given is None else dict(given)
    if template is not None:
        knows_thinking = "enable_thinking" in template.source
    else:
        knows_thinking = True if options and "enable_thinking" in options else None
    return TemplateState(knows_thinking=knows_thinking, options=options, thinking=await _thinking(engine))


async def _thinking(engine: Engine) -> str | None:
    if not engine.facts.constrains:  # the tokens of the model are not known
        return None
    ids = await engine.tokenizer.encode_prompt(PROBE_TEXT)
    thinking, _ = await thinking_after(ids, tokenizer=engine.tokenizer)
    return thinking.value


async def special_tokens(engine: Engine) -> SpecialTokens:
    """Return the number of control tokens, and where they come from."""
    found = await engine.tokenizer.control_tokens()
    return SpecialTokens(
        number=len(found.served.tokens), source="families" if found.tokens == FAMILIES.tokens else "tokenizer"
    )


def stop_strings(turns: Sequence[ObservedTurn], *, judge: Judge) -> list[StopString]:
    """Return the stop strings of the format of the judge, with the turns that each of them ended."""
    format, found = judge.format, dict[str, StopString]()
    for mode in MODEL_MODES:
        stops = format.stops(mode, tools=judge.tools)
        forcing = format.forcing(mode, labels=format.labels(mode, 2))
        opening = None if forcing is None else forcing.opening.strip()
        for text in stops.call:
            found.setdefault(text, _stop_string(text, turns=turns, opening=None))
        for text in stops.verdict:
            found.setdefault(text, _stop_string(text, turns=turns, opening=opening))
    return list(found.values())


def _stop_string(text: str, *, turns: Sequence[ObservedTurn], opening: str | None) -> StopString:
    asked = [turn.completion for turn in turns if text in turn.sampling.stop]
    others = [completion for completion in asked if completion.stop != text]
    missed = [
        text in completion.text
        or (
            opening is not None
            and opening in completion.text
            and completion.stop is None
            and completion.finish_reason == "stop"
        )
        for completion in others
    ]
    return StopString(text=text, turns=len(asked), matched=len(asked) - len(others), missed=sum(missed))


async def prefix_cache(judge: Judge, request: JudgeRequest) -> PrefixCache:
    """Send the prompt of a request twice, and return how much of the second one was cached. This is also the first
    request to the model, so that a wrong address or key is found here.

    Raises:
        TirjudgeError: the model cannot be reached, or rejects the request.
    """
    order = tuple(range(len(request.responses))) if request.mode is not Mode.POINTWISE else (0,)
    ids = await judge.encode(request, order=order)
    sampling = Sampling(max_tokens=PROBE_TOKENS, logprobs=False)
    await judge.engine.generate(ids, sampling=sampling, session="doctor-1")
    second = await judge.engine.generate(ids, sampling=sampling, session="doctor-2")
    counted = second.counted
    if counted is not None:
        return PrefixCache(prompt_tokens=counted.prompt, cached_tokens=counted.cached)
    return PrefixCache(prompt_tokens=len(ids), cached_tokens=second.num_cached)
