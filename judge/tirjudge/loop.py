"""The one loop: a model writes, its programs run, their output comes back, until there is a verdict.

Serving, training, sampling, evaluating and re-ranking all go through `run_rollout`. It works on token ids, forward only:
what the engine returned is kept as it is, an observation is encoded once, and each turn's prompt is the last one plus
what came after. Two protocols are all it needs of the world; engines and sandboxes implement them.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Protocol, runtime_checkable

from tirjudge.alternatives import label_logprobs
from tirjudge.control_tokens import ControlTokens
from tirjudge.deadline import NEVER, Deadline, until
from tirjudge.errors import PromptTooLong
from tirjudge.observation import cut, observation_text, shown_output
from tirjudge.parse import OUTPUT_FENCE, asks_for_run, find_verdict, parse_code, stop_strings, verdict_tag
from tirjudge.profile import Profile
from tirjudge.types import Completion, ExecResult, Mode, Outcome, Rollout, Sampling, StopReason, Turn

OUT_OF_TIME = ExecResult(outcome=Outcome.TIMEOUT, error="TimeLimit: the time of the judgment is up")
"""How a program went that the deadline ended."""

Bindings = Mapping[str, str | Mapping[str, str]]
"""Variables a program finds: name -> text, or name -> (label -> text)."""

RESERVED_TOKENS = 32
"""Kept free at the end of the context for the fences of a last observation and for a forced verdict."""


class Tokenizer(Protocol):
    """Text to ids, as the served model reads it. Asynchronous because it may sit behind HTTP."""

    async def encode(self, text: str) -> list[int]:
        """Ids of a piece of text in the middle of a sequence; nothing is added."""
        ...

    async def encode_prompt(self, text: str) -> list[int]:
        """Ids of one user message in the model's chat template, up to where the answer begins."""
        ...

    async def control_tokens(self) -> ControlTokens:
        """What it reads as control tokens wherever a text spells them; `FAMILIES` if it cannot know."""
        ...


class Engine(Protocol):
    """Generates tokens from tokens."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Ids that end a turn; empty if the engine cannot know."""
        ...

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        """One turn.

        Args:
            token_ids: the whole sequence so far.
            sampling: how to sample, when to stop.
            session: the same for all turns of one rollout, so that its cache is found again.

        Raises:
            EngineUnavailable: it cannot be reached, or failed.
        """
        ...


@runtime_checkable
class Conversation(Engine, Protocol):
    """An engine that cannot be held to the labels, such as a chat endpoint. It is asked for its verdict in words, and the
    labels' probabilities are what its completions tell of the tokens that it might have written instead."""

    async def ask_verdict(
        self, token_ids: Sequence[int], *, tag: str, labels: Sequence[str], session: str
    ) -> Completion:
        """One answer that may hold the verdict.

        Args:
            token_ids: the whole sequence so far.
            tag: that the label is to stand in.
            labels: what the verdict may say.
            session: as in `generate`.

        Raises:
            EngineUnavailable: it cannot be reached, or failed.
        """
        ...


class Sandbox(Protocol):
    """Runs strangers' Python."""

    async def run(self, code: str, *, bindings: Bindings) -> ExecResult:
        """One program, in a new process, with `bindings` set as variables.

        Raises:
            SandboxUnavailable: the program could not be run, for a reason that is not its own.
        """
        ...


OnTurn = Callable[[Turn], Awaitable[None]]


async def run_rollout(
    prompt_ids: Sequence[int],
    *,
    mode: Mode,
    labels: Sequence[str],
    engine: Engine,
    sandbox: Sandbox | None,
    bindings: Bindings,
    profile: Profile,
    sampling: Sampling,
    session: str,
    max_tool_calls: int = 3,
    force_verdict: bool = True,
    read_probabilities: bool = True,
    deadline: Deadline = NEVER,
    on_turn: OnTurn | None = None,
) -> Rollout:
    """From a prompt to a verdict, or to the reason why there is none.

    Args:
        prompt_ids: the rendered prompt, encoded.
        mode: decides the verdict tag.
        labels: what the verdict may say.
        engine: generates.
        sandbox: runs programs; None: the prompt offered no tools, and nothing is run.
        bindings: variables of every program.
        profile: token budgets.
        sampling: temperature, top_p and seed of every turn; its budget and stops are set here.
        session: unique to this rollout.
        max_tool_calls: programs that may run; one more ends the rollout unrun.
        force_verdict: open the verdict tag and constrain the label if the model gave none; a `Conversation` is asked.
        read_probabilities: ask the engine for the probability of every label where the model gave a verdict of its own;
            a rollout for training does without, which saves a request.
        deadline: cuts off the turn, and the program, that would run past it. If not even the verdict can be read in
            time, the rollout has none.
        on_turn: told of each turn as it ends.

    Raises:
        PromptTooLong: the prompt leaves no room to answer.
        EngineUnavailable, SandboxUnavailable: from below, unchanged.
    """
    ids, end = list(prompt_ids), profile.context_tokens - RESERVED_TOKENS
    if len(ids) >= end:
        raise PromptTooLong(
            f"the prompt has {len(ids)} tokens; {profile.name} takes {profile.context_tokens} with the answer"
        )
    sampling = replace(sampling, stop=stop_strings(mode, tools=sandbox is not None))
    turns: list[Turn] = []
    stop_reason = None
    while stop_reason is None:
        num_generated = sum(len(turn.completion.token_ids) for turn in turns)
        num_left = min(end - len(ids), profile.rollout_tokens - num_generated)
        if num_left <= 0:
            stop_reason = StopReason.LENGTH
            break
        if deadline.is_near:
            stop_reason = StopReason.DEADLINE
            break
        generating = _generate(
            ids,
            sampling=sampling,
            num_left=num_left,
            number=len(turns),
            engine=engine,
            session=session,
            tools=sandbox is not None,
        )
        generated = await until(deadline.forces_at, generating)
        if generated is None:
            stop_reason = StopReason.DEADLINE
            break
        turn, wants_run = generated
        if wants_run and sandbox is not None and sum(turn.result is not None for turn in turns) < max_tool_calls:
            num_tokens = min(profile.observation_tokens, max(0, end - len(ids) - len(turn.completion.token_ids)))
            turn = await _run_code(
                turn, sandbox=sandbox, bindings=bindings, engine=engine, num_tokens=num_tokens, deadline=deadline
            )
        turns.append(turn)
        ids += [*turn.completion.token_ids, *turn.observation_ids]
        if on_turn is not None:
            await on_turn(turn)
        stop_reason = _why_it_ends(turns, mode=mode, labels=labels, wants_run=wants_run)
    rollout = Rollout(prompt_ids=tuple(prompt_ids), turns=tuple(turns), stop_reason=stop_reason, model=profile.name)
    reading = _read_verdict(
        rollout,
        mode=mode,
        labels=labels,
        engine=engine,
        session=session,
        force=force_verdict,
        read_probabilities=read_probabilities,
    )
    return await until(deadline.reads_until, reading) or replace(rollout, stop_reason=StopReason.DEADLINE)


async def _generate(
    ids: Sequence[int], *, sampling: Sampling, num_left: int, number: int, engine: Engine, session: str, tools: bool
) -> tuple[Turn, bool]:
    """The turn's completion, and whether it asks for its program to be run."""
    seed = None if sampling.seed is None else (sampling.seed + number) % 2**63
    started = perf_counter()
    sampling = replace(sampling, max_tokens=num_left, seed=seed, turn=number)
    completion = await engine.generate(ids, sampling=sampling, session=session)
    engine_s = perf_counter() - started
    wants_run, completion = _wants_run(completion, eos_token_ids=engine.eos_token_ids, tools=tools)
    return Turn(completion=completion, engine_s=engine_s), wants_run


def _wants_run(completion: Completion, *, eos_token_ids: frozenset[int], tools: bool) -> tuple[bool, Completion]:
    """Whether the turn asks for its program to be run, and the completion as it goes into the sequence.

    A model not trained on the output fence just ends its turn after the block: then the end-of-turn token is dropped,
    since the sequence goes on.
    """
    if not tools:
        return False, completion
    if completion.stop == OUTPUT_FENCE:
        return True, completion
    if completion.stop is None and completion.finish_reason == "stop" and asks_for_run(completion.text):
        return True, _without_end_of_turn(completion, eos_token_ids=eos_token_ids)
    return False, completion


def _without_end_of_turn(completion: Completion, *, eos_token_ids: frozenset[int]) -> Completion:
    """The completion as it stands in a sequence that goes on."""
    ids = completion.token_ids
    if not ids or ids[-1] not in eos_token_ids:
        return completion
    return replace(completion, token_ids=ids[:-1], logprobs=completion.logprobs[:-1])


async def _run_code(
    turn: Turn, *, sandbox: Sandbox, bindings: Bindings, engine: Engine, num_tokens: int, deadline: Deadline
) -> Turn:
    """The turn with its program run, in the time that is left, and the observation encoded."""
    code = parse_code(turn.completion.text)
    if code is None:
        result = ExecResult(
            outcome=Outcome.REFUSED, error="NoProgram: no closed ```python block before the output block"
        )
    else:
        result = await until(deadline.forces_at, sandbox.run(code, bindings=bindings)) or OUT_OF_TIME
    opening = "" if turn.completion.stop == OUTPUT_FENCE else f"\n{OUTPUT_FENCE}"
    output, ids = await _encode_observation(result, opening=opening, tokenizer=engine.tokenizer, num_tokens=num_tokens)
    return replace(turn, code=code, result=result, output=output, observation_ids=tuple(ids))


async def _encode_observation(
    result: ExecResult, *, opening: str, tokenizer: Tokenizer, num_tokens: int
) -> tuple[str, list[int]]:
    """The output, cut until it takes at most `num_tokens` between its fences, and the ids of the whole observation."""
    output = shown_output(result, limit=num_tokens * 16, control_tokens=await tokenizer.control_tokens())
    while True:
        ids = await tokenizer.encode(opening + observation_text(output))
        if len(ids) <= num_tokens or not output:
            return output, ids
        shorter = cut(output, limit=max(0, len(output) * num_tokens // (len(ids) + 16) - 16))
        output = shorter if len(shorter) < len(output) else ""


def _why_it_ends(turns: Sequence[Turn], *, mode: Mode, labels: Sequence[str], wants_run: bool) -> StopReason | None:
    """None: it goes on, because the last turn's program was run."""
    if wants_run:
        return None if turns[-1].result is not None else StopReason.TOOL_BUDGET
    if find_verdict([turn.completion.text for turn in turns], mode=mode, labels=labels) is not None:
        return StopReason.VERDICT
    last = turns[-1].completion
    if last.finish_reason != "stop":
        return StopReason.LENGTH
    return StopReason.MALFORMED if last.stop == f"</{verdict_tag(mode)}>" else StopReason.NO_VERDICT


async def _read_verdict(
    rollout: Rollout,
    *,
    mode: Mode,
    labels: Sequence[str],
    engine: Engine,
    session: str,
    force: bool,
    read_probabilities: bool,
) -> Rollout:
    """The rollout with its label and the log-probability of every label at the verdict position, as far as it is known."""
    texts = [turn.completion.text for turn in rollout.turns]
    found = find_verdict(texts, mode=mode, labels=labels)
    if found is not None and not read_probabilities:
        return replace(rollout, label=found.label)
    if found is not None and isinstance(engine, Conversation):
        logprobs = label_logprobs(rollout.turns[found.turn].completion, start=found.start, labels=labels)
        return replace(rollout, label=found.label, label_logprobs=logprobs)
    if found is not None:
        head = await engine.tokenizer.encode(texts[found.turn][: found.start])
        prefix = [*rollout.prompt_ids, *_ids_of(rollout.turns[: found.turn]), *head]
        logprobs = await read_labels(prefix, labels=labels, engine=engine, session=session, turn=len(rollout.turns))
        return replace(rollout, label=found.label, label_logprobs=logprobs)
    if not force:
        return rollout
    if isinstance(engine, Conversation):
        return await _ask_verdict(rollout, mode=mode, labels=labels, engine=engine, session=session)
    return await _force_verdict(rollout, mode=mode, labels=labels, engine=engine, session=session)


async def _force_verdict(
    rollout: Rollout, *, mode: Mode, labels: Sequence[str], engine: Engine, session: str
) -> Rollout:
    """The rollout with the verdict tag opened for the model and its likeliest label in it, all of it marked as ours."""
    turns = rollout.turns
    if turns:
        last = _without_end_of_turn(turns[-1].completion, eos_token_ids=engine.eos_token_ids)
        turns = (*turns[:-1], replace(turns[-1], completion=last))
    tag = verdict_tag(mode)
    opening = await engine.tokenizer.encode(f"\n<{tag}>")
    prefix = [*rollout.prompt_ids, *_ids_of(turns), *opening]
    logprobs = await read_labels(prefix, labels=labels, engine=engine, session=session, turn=len(turns))
    label = max(logprobs, key=lambda name: logprobs[name])
    forced = (*opening, *await engine.tokenizer.encode(f"{label}</{tag}>"))
    return replace(rollout, turns=turns, label=label, label_logprobs=logprobs, forced_ids=forced)


async def _ask_verdict(
    rollout: Rollout, *, mode: Mode, labels: Sequence[str], engine: Conversation, session: str
) -> Rollout:
    """The rollout with the verdict that the model gave when it was asked for nothing else; as it was if it gave none."""
    tag = verdict_tag(mode)
    asked = await engine.ask_verdict(
        [*rollout.prompt_ids, *_ids_of(rollout.turns)], tag=tag, labels=labels, session=session
    )
    rollout = replace(rollout, asked=asked)
    found = find_verdict([asked.text], mode=mode, labels=labels)
    if found is None:
        return rollout
    forced = await engine.tokenizer.encode(f"\n<{tag}>{found.label}</{tag}>")
    logprobs = label_logprobs(asked, start=found.start, labels=labels)
    return replace(rollout, label=found.label, label_logprobs=logprobs, forced_ids=tuple(forced))


def _ids_of(turns: Sequence[Turn]) -> list[int]:
    return [i for turn in turns for i in (*turn.completion.token_ids, *turn.observation_ids)]


async def read_labels(
    prefix: Sequence[int], *, labels: Sequence[str], engine: Engine, session: str, turn: int = 0
) -> dict[str, float]:
    """Log-probability of each label right after `prefix`, over the full vocabulary.

    One token is generated under a constraint and thrown away. A label of several tokens (with most tokenizers "10" is
    "1", "0") takes one more read for each first token that it shares: P("10") = P("1") P("0" | "1"), and P("1") keeps
    the rest.
    """
    encoded = {label: tuple(await engine.tokenizer.encode(label)) for label in labels}
    found: dict[str, float] = {}

    async def descend(path: tuple[int, ...], logprob: float) -> None:
        here = {label: ids for label, ids in encoded.items() if ids[: len(path)] == path}
        next_ids = sorted({ids[len(path)] for ids in here.values() if len(ids) > len(path)})
        ended = next((label for label, ids in here.items() if ids == path), None)
        rest = 1.0
        if next_ids:
            wanted = tuple(next_ids)
            sampling = Sampling(
                max_tokens=1, allowed_token_ids=wanted, logprob_token_ids=wanted, logprobs=False, turn=turn
            )
            read = (await engine.generate([*prefix, *path], sampling=sampling, session=session)).token_logprobs
            for token_id in next_ids:
                rest -= math.exp(read[token_id])
                await descend((*path, token_id), logprob + read[token_id])
        if ended is not None:
            found[ended] = logprob + math.log(max(rest, 1e-12))

    await descend((), 0.0)
    return {label: found[label] for label in labels}
