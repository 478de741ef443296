"""The judging loop: the model generates a turn, its tool call runs, the output is appended, until there is a verdict.

Serving, training, sampling, evaluation and re-ranking all use `run_rollout`. It works on token ids and only appends:
the ids from the engine are kept unchanged, each observation is encoded once, and the prompt of each turn is a prefix of
the next. The loop depends on three protocols: a `Format` renders and parses text, a `Tool` runs calls, an `Engine`
generates tokens.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from tirjudge.alternatives import label_logprobs
from tirjudge.basis import basis_of
from tirjudge.deadline import NEVER, Deadline, until
from tirjudge.engines.base import Engine, Tokenizer
from tirjudge.errors import PromptTooLong
from tirjudge.formats.base import Forcing, Format, FoundVerdict
from tirjudge.formats.texts import cut
from tirjudge.labels import LabelPlace, mixed_with_even, place_of_labels, tempered
from tirjudge.profile import Profile
from tirjudge.thoughts import Thinking, ThoughtTags, thinking_after
from tirjudge.tools.base import Tool, ToolContext
from tirjudge.types import Completion, Mode, Outcome, Rollout, Sampling, StopReason, ToolCall, ToolResult, Turn

OUT_OF_TIME = ToolResult(outcome=Outcome.TIMEOUT, error="TimeLimit: the time of the judgment is up")
"""Result of a call that the deadline interrupted."""

RESERVED_TOKENS = 32
"""Tokens kept free at the end of the context for the fences of a last observation and for a forced verdict."""

OnTurn = Callable[[Turn], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSpec:
    """Parameters of one rollout."""

    mode: Mode
    """Judging task."""
    labels: Sequence[str]
    """Labels that a verdict may have."""
    format: Format
    """Format of the prompt and of the model's texts."""
    engine: Engine
    """Engine that generates the turns."""
    tools: Sequence[Tool]
    """Tools that the prompt offers. Empty: no calls are run."""
    context: ToolContext
    """Context passed to every call."""
    profile: Profile
    """Name and token budgets of the model."""
    sampling: Sampling
    """Temperature, top_p and seed of every turn. The loop sets the token budget and the stop strings."""
    session: str
    """Unique id of this rollout."""
    max_tool_calls: int = 3
    """Maximum number of calls. One call more ends the rollout and is not run."""
    force_verdict: bool = True
    """Whether to force a verdict if the model gave none: open the verdict tag and constrain the label. An engine that
    cannot be constrained is asked for its verdict as text."""
    read_probabilities: bool = True
    """Whether to read the probability of every label after a verdict of the model. Training rollouts skip this, which
    saves a request."""
    deadline: Deadline = NEVER
    """Interrupts a turn or a call that runs past it. The rollout has no verdict if no time is left to read it."""
    on_turn: OnTurn | None = None
    """Called with each turn when it ends. None: no callback."""


async def run_rollout(prompt_ids: Sequence[int], spec: RolloutSpec) -> Rollout:
    """Run one rollout from an encoded prompt to a verdict, or to the reason for a missing verdict.

    Args:
        prompt_ids: ids of the rendered prompt.
        spec: parameters of the rollout.

    Raises:
        PromptTooLong: the prompt leaves no room for an answer.
        EngineUnavailable, SandboxUnavailable: raised by the engine or by a tool.
    """
    profile = spec.profile
    thinking, tags = await thinking_after(prompt_ids, tokenizer=spec.engine.tokenizer)
    running = _Rollout(prompt_ids, spec, thinking=thinking, tags=tags)
    if len(prompt_ids) >= running.end:
        raise PromptTooLong(
            f"the prompt has {len(prompt_ids)} tokens, but the context of {profile.name} is {profile.context_tokens} tokens "
            "including the answer"
        )
    stop_reason = None
    while stop_reason is None:
        stop_reason = await running.take_turn()
    rollout = Rollout(
        prompt_ids=tuple(prompt_ids), turns=tuple(running.turns), stop_reason=stop_reason, model=profile.name
    )
    reading = _read_verdict(rollout, spec, unclosed=tags.ending if running.thinking is Thinking.OPEN else "")
    read = await until(spec.deadline.reads_until, reading) or replace(rollout, stop_reason=StopReason.DEADLINE)
    return _calibrated(read, profile, mode=spec.mode)


class _Rollout:
    """State of a running rollout: its turns so far, the ids of the whole sequence, and whether a thought is open."""

    def __init__(self, prompt_ids: Sequence[int], spec: RolloutSpec, *, thinking: Thinking, tags: ThoughtTags) -> None:
        self.spec = spec
        self.thinking = thinking
        self.tags = tags
        self.stops = spec.format.stops(spec.mode, tools=spec.tools)
        self.end = spec.profile.context_tokens - RESERVED_TOKENS
        self.ids = list(prompt_ids)
        self.turns: list[Turn] = []

    async def take_turn(self) -> StopReason | None:
        """Generate the next turn and run its call. Return why the rollout ends, or None if another turn follows."""
        spec = self.spec
        num_left = self._num_left(spec.profile.rollout_tokens, thoughts=False)
        if self.thinking is Thinking.OPEN:
            room = self.end - len(self.ids)
            num_left = min(self._num_left(spec.profile.thinking_tokens, thoughts=True), room - min(num_left, room // 2))
        if num_left <= 0:
            return StopReason.LENGTH
        if spec.deadline.is_near:
            return StopReason.DEADLINE
        turn = await until(spec.deadline.forces_at, self._generate(max_tokens=num_left))
        if turn is None:
            return StopReason.DEADLINE
        if turn.is_thought:
            turn = await self._close_thought(turn)
        elif turn.call is not None and sum(each.result is not None for each in self.turns) < spec.max_tool_calls:
            turn = await self._run(turn, turn.call)
        self.turns.append(turn)
        self.ids += [*turn.completion.token_ids, *turn.observation_ids]
        if spec.on_turn is not None:
            await spec.on_turn(turn)
        return self._why_it_ends(turn)

    def _num_left(self, budget: int, *, thoughts: bool) -> int:
        """Return how many tokens of a budget are left, for thoughts or for the rest, and fit the context."""
        used = sum(len(turn.completion.token_ids) for turn in self.turns if turn.is_thought is thoughts)
        return min(self.end - len(self.ids), budget - used)

    async def _generate(self, *, max_tokens: int) -> Turn:
        spec, number = self.spec, len(self.turns)
        seed = None if spec.sampling.seed is None else (spec.sampling.seed + number) % 2**63
        logprobs = spec.sampling.logprobs or spec.profile.program_weight is not None
        sampling = replace(
            spec.sampling, max_tokens=max_tokens, seed=seed, turn=number, stop=self._stops(), logprobs=logprobs
        )
        started = perf_counter()
        completion = await spec.engine.generate(self.ids, sampling=sampling, session=spec.session)
        engine_s = perf_counter() - started
        if self.thinking is Thinking.OPEN or (
            self.thinking is Thinking.POSSIBLE and completion.stop == self.tags.opening
        ):
            return Turn(completion=completion, engine_s=engine_s, is_thought=True)
        is_filtered = completion.finish_reason == "content_filter"
        call = None if is_filtered else spec.format.read_call(completion, tools=spec.tools)
        if call is not None and completion.stop is None:  # the model ended its turn, but the observation follows
            completion = _without_end_of_turn(completion, eos_token_ids=spec.engine.eos_token_ids)
        return Turn(completion=completion, call=call, engine_s=engine_s)

    def _stops(self) -> tuple[str, ...]:
        """Return the stop strings of the next turn. In a thought, only its end counts."""
        if self.thinking is Thinking.OPEN:
            return (self.tags.closing,)
        opening = (self.tags.opening,) if self.thinking is Thinking.POSSIBLE else ()
        return (*self.stops.verdict, *self.stops.call, *opening)

    async def _close_thought(self, turn: Turn) -> Turn:
        """Update whether a thought is open after a turn of thought. A thought that used up its budget is closed, so that
        the model can answer."""
        completion = turn.completion
        if completion.stop == self.tags.opening:
            self.thinking = Thinking.OPEN
        elif completion.stop == self.tags.closing:
            self.thinking = Thinking.POSSIBLE
        elif completion.finish_reason != "stop":
            self.thinking = Thinking.POSSIBLE
            return replace(turn, observation_ids=tuple(await self.spec.engine.tokenizer.encode(self.tags.ending)))
        return turn

    async def _run(self, turn: Turn, call: ToolCall) -> Turn:
        """Run the call of a turn within the deadline. Return the turn with the result and the encoded observation."""
        spec = self.spec
        if call.source is None:
            result = ToolResult(outcome=Outcome.REFUSED, error=call.problem)
        else:
            tool = next(tool for tool in spec.tools if tool.name == call.tool)
            running, started = tool.run(call.source, context=spec.context), perf_counter()
            result = await until(spec.deadline.forces_at, running) or OUT_OF_TIME
            result = result if result.wall_s else replace(result, wall_s=perf_counter() - started)
        num_left = max(0, self.end - len(self.ids) - len(turn.completion.token_ids))
        num_tokens = min(spec.profile.observation_tokens, num_left)
        output, ids = await encode_observation(
            result, call=call, format=spec.format, tokenizer=spec.engine.tokenizer, num_tokens=num_tokens
        )
        return replace(turn, result=result, output=output, observation_ids=tuple(ids))

    def _why_it_ends(self, turn: Turn) -> StopReason | None:
        """Return why the rollout ends after this turn, or None if its call was run and another turn follows."""
        spec = self.spec
        if turn.is_thought and (turn.completion.stop is not None or turn.observation_ids):
            return None
        if turn.call is not None:
            return None if turn.result is not None else StopReason.TOOL_BUDGET
        if turn.completion.finish_reason == "content_filter":
            return StopReason.CONTENT_FILTER
        if _found(self.turns, spec) is not None:
            return StopReason.VERDICT
        if turn.completion.finish_reason != "stop":
            return StopReason.LENGTH
        return StopReason.MALFORMED if turn.completion.stop in self.stops.verdict else StopReason.NO_VERDICT


async def encode_observation(
    result: ToolResult, *, call: ToolCall, format: Format, tokenizer: Tokenizer, num_tokens: int
) -> tuple[str, list[int]]:
    """Encode the observation of a call, with its output cut until the observation has at most `num_tokens` ids.

    Returns:
        The output as shown to the model, and the ids of the observation including its delimiters.
    """
    control_tokens = await tokenizer.control_tokens([result.stdout, result.error or ""])
    output = format.shown_output(result, limit=num_tokens * 16, control_tokens=control_tokens)
    while True:
        ids = await tokenizer.encode(format.observation(output, call=call))
        if len(ids) <= num_tokens or not output:
            return output, ids
        shorter = cut(output, limit=max(0, len(output) * num_tokens // (len(ids) + 16) - 16))
        output = shorter if len(shorter) < len(output) else ""


def _without_end_of_turn(completion: Completion, *, eos_token_ids: frozenset[int]) -> Completion:
    """Return the completion without the end-of-turn token at its end, so that more text can follow."""
    ids = completion.token_ids
    if not ids or ids[-1] not in eos_token_ids:
        return completion
    return replace(completion, token_ids=ids[:-1], logprobs=completion.logprobs[:-1])


def _calibrated(rollout: Rollout, profile: Profile, *, mode: Mode) -> Rollout:
    """Return the rollout with calibrated label probabilities, and with whether the model was sure of its programs."""
    probability, weight = rollout.program_probability, 1.0
    if profile.program_weight is not None and probability is not None:
        weight = probability**profile.program_weight
    logprobs = tempered(rollout.label_logprobs, temperature=profile.label_temperature)
    calibrated = replace(
        rollout, label_logprobs=mixed_with_even(logprobs, weight=weight), is_unsure=weight < profile.checked_from
    )
    if profile.unchecked_weight == 1 or basis_of(calibrated, mode=mode) == "checked":
        return calibrated
    even = mixed_with_even(calibrated.label_logprobs, weight=profile.unchecked_weight)
    return replace(calibrated, label_logprobs=even)


def _found(turns: Sequence[Turn], spec: RolloutSpec) -> FoundVerdict | None:
    texts = ["" if turn.is_thought else turn.completion.text for turn in turns]
    return spec.format.find_verdict(texts, mode=spec.mode, labels=spec.labels)


async def _read_verdict(rollout: Rollout, spec: RolloutSpec, *, unclosed: str) -> Rollout:
    """Return the rollout with its label and, if the engine provides them, the log-probabilities of all labels.

    Args:
        rollout: the rollout, without a label.
        spec: parameters of the rollout.
        unclosed: text that closes a thought that is still open. Empty: no thought is open.
    """
    if rollout.stop_reason is StopReason.CONTENT_FILTER:
        return rollout
    found = _found(rollout.turns, spec)
    if found is None:
        return await _force_verdict(rollout, spec, unclosed=unclosed) if spec.force_verdict else rollout
    logprobs = await _label_logprobs(rollout, found, spec) if spec.read_probabilities else {}
    return replace(rollout, label=found.label, written=found.written, points=found.points, label_logprobs=logprobs)


async def _label_logprobs(rollout: Rollout, found: FoundVerdict, spec: RolloutSpec) -> dict[str, float]:
    """Return the log-probability of each label at the position of the model's verdict; empty if not known."""
    if found.spellings is None:
        return await _spelling_logprobs(rollout, found, spec, spellings=spec.labels)
    of_texts = await _spelling_logprobs(rollout, found, spec, spellings=tuple(found.spellings))
    if not of_texts:
        return {}
    # The letters of the responses come first, in the order shown, also those that no text spells.
    masses: dict[str, list[float]] = {} if spec.mode is Mode.POINTWISE else {label: [] for label in spec.labels}
    for text, logprob in of_texts.items():
        masses.setdefault(found.spellings[text], []).append(math.exp(logprob))
    return {label: math.log(math.fsum(mass)) if any(mass) else -math.inf for label, mass in masses.items()}


async def _spelling_logprobs(
    rollout: Rollout, found: FoundVerdict, spec: RolloutSpec, *, spellings: Sequence[str]
) -> dict[str, float]:
    """Return the log-probability of each text that spells a label; empty if not known."""
    completion, engine = rollout.turns[found.turn].completion, spec.engine
    if not spellings:
        return {}
    if not engine.facts.constrains:
        return label_logprobs(completion, start=found.start, labels=spellings)
    place = await place_of_labels(
        completion.token_ids,
        completion.text,
        opens=found.opens,
        opened=found.opened,
        start=found.start,
        labels=spellings,
        closing=completion.text[found.start + len(found.written or found.label) :],
        tokenizer=engine.tokenizer,
    )
    if place is None:
        return {}
    head = completion.token_ids[: place.num_ids]
    prefix = [*rollout.prompt_ids, *_ids_of(rollout.turns[: found.turn]), *head]
    return await _read_labels_at(place, prefix, spec, labels=spellings, turn=len(rollout.turns)) or {}


async def _read_labels_at(
    place: LabelPlace, prefix: Sequence[int], spec: RolloutSpec, *, labels: Sequence[str], turn: int
) -> dict[str, float] | None:
    return await spec.engine.read_labels(
        prefix,
        labels=labels,
        opening=place.opening,
        closing=place.closing,
        session=spec.session,
        turn=turn,
    )


async def _force_verdict(rollout: Rollout, spec: RolloutSpec, *, unclosed: str) -> Rollout:
    """Return the rollout with a forced verdict: the most likely label, inside tags that the loop inserts after the end
    of a thought that is still open. Return the rollout unchanged if the format or the engine cannot force a verdict."""
    forcing = spec.format.forcing(spec.mode, labels=spec.labels)
    if forcing is None:
        return rollout
    engine, turns = spec.engine, rollout.turns
    if not engine.facts.constrains:
        return await _ask_verdict(rollout, spec, forcing)
    if turns:
        last = _without_end_of_turn(turns[-1].completion, eos_token_ids=engine.eos_token_ids)
        turns = (*turns[:-1], replace(turns[-1], completion=last))
    text = unclosed + forcing.opening
    opening = await engine.tokenizer.encode(text)
    end = len(text)
    place = await place_of_labels(
        opening,
        text,
        opens=len(unclosed),
        opened=end,
        start=end,
        labels=spec.labels,
        closing=forcing.closing,
        tokenizer=engine.tokenizer,
    ) or LabelPlace(num_ids=len(opening))
    prefix = [*rollout.prompt_ids, *_ids_of(turns), *opening[: place.num_ids]]
    logprobs = await _read_labels_at(place, prefix, spec, labels=spec.labels, turn=len(turns))
    if logprobs is None:
        return rollout
    label = max(logprobs, key=lambda name: logprobs[name])
    forced = await engine.tokenizer.encode(text + label + forcing.closing)
    return replace(rollout, turns=turns, label=label, label_logprobs=logprobs, forced_ids=tuple(forced))


async def _ask_verdict(rollout: Rollout, spec: RolloutSpec, forcing: Forcing) -> Rollout:
    """Ask the model for its verdict as text and return the rollout with that verdict; without a label if it gave
    none."""
    asked = await spec.engine.ask_verdict(
        [*rollout.prompt_ids, *_ids_of(rollout.turns)],
        question=forcing.question,
        stop=(forcing.closing,),
        session=spec.session,
    )
    rollout = replace(rollout, asked=asked)
    if asked.finish_reason == "content_filter":
        return replace(rollout, stop_reason=StopReason.CONTENT_FILTER)
    found = spec.format.find_verdict([asked.text], mode=spec.mode, labels=spec.labels)
    if found is None:
        return rollout
    forced = await spec.engine.tokenizer.encode(forcing.opening + found.label + forcing.closing)
    logprobs = label_logprobs(asked, start=found.start, labels=spec.labels)
    return replace(rollout, label=found.label, label_logprobs=logprobs, forced_ids=tuple(forced))


def _ids_of(turns: Sequence[Turn]) -> list[int]:
    return [i for turn in turns for i in (*turn.completion.token_ids, *turn.observation_ids)]
