"""Samples answers to problems: so many of each model to each problem, side by side, and none of them twice.

An answer is written down before the next one is asked for in its place. What is written down is known by what was
asked: the conversation, the model, how it was sampled, and which of the answers it is. So the same command goes on
where it was ended, more samples or models ask only for what is missing, and another temperature asks anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from tirjudge.concurrency import run_concurrently
from tirjudge.durable import Journal, parse_lines
from tirjudge.errors import PromptTooLong
from tirjudge.http.exchange import RequestRefused
from tirjudge.types import ChatMessage, Sampling
from tirjudge_training.data.problems import TrainingProblem
from tirjudge_training.pairs.endpoint import Endpoint

MANY_REFUSALS = 20
"""So many requests refused in a row, or the very first: it is not the prompts."""


class SampleLine(BaseModel):
    """One answer, as the journal keeps it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ask: str
    """Hash of what was asked."""
    source: str
    problem: str
    model: str
    number: int
    text: str
    was_cut: bool
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPlan:
    """How answers are sampled. The paper: two of each model, temperature 0.9, top_p 0.95."""

    models: tuple[str, ...]
    num_samples: int = 2
    """Of each model, to each problem."""
    temperature: float = 0.9
    top_p: float = 0.95
    max_tokens: int = 4096
    """Longest answer; one that is longer is not used."""
    seed: int = 0
    """Answers get seeds from it, where the endpoint takes any."""
    concurrency: int = 16
    """Requests side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One answer that is wanted."""

    problem: TrainingProblem
    model: str
    number: int
    """Which of this model's answers to this problem, from 0."""
    messages: tuple[ChatMessage, ...]
    key: str
    """Hash of what is asked."""
    sampling: Sampling


@dataclass(slots=True)
class Samples:
    """What came of it."""

    lines: dict[str, SampleLine] = field(default_factory=dict)
    """Key of what was asked -> the answer."""
    num_kept: int = 0
    """Of those, how many an earlier run had."""
    failures: list[str] = field(default_factory=list)
    """What the endpoint refused for good: problem, model, and why. They are asked for again by the next run."""


def asks_of(problems: Sequence[TrainingProblem], *, plan: AnswerPlan) -> list[Ask]:
    """All answers that are wanted, the first of each problem and model before the second."""
    return [
        _ask(problem, model=model, number=number, plan=plan)
        for number in range(plan.num_samples)
        for problem in problems
        for model in plan.models
    ]


def _ask(problem: TrainingProblem, *, model: str, number: int, plan: AnswerPlan) -> Ask:
    prompt = problem.prompt
    messages = (ChatMessage(role="user", content=prompt),) if isinstance(prompt, str) else prompt
    conversation = [(message.role, message.content) for message in messages]
    how = [plan.temperature, plan.top_p, plan.max_tokens, plan.seed]
    asked = json.dumps([problem.source, problem.id, conversation, model, number, how], ensure_ascii=False)
    digest = hashlib.sha256(asked.encode()).digest()
    sampling = Sampling(
        max_tokens=plan.max_tokens,
        temperature=plan.temperature,
        top_p=plan.top_p,
        seed=int.from_bytes(digest[:4], "big"),
    )
    return Ask(problem=problem, model=model, number=number, messages=messages, key=digest.hex()[:32], sampling=sampling)


async def sample(
    asks: Sequence[Ask],
    *,
    endpoint: Endpoint,
    journal: Journal,
    concurrency: int,
    on_answer: Callable[[int], None] | None = None,
) -> Samples:
    """Ask for what the journal does not hold.

    Args:
        on_answer: called with how many more are there: first those of earlier runs, then each.

    Raises:
        RequestRefused: the endpoint refuses whatever it is asked: the key or the model is wrong.
        EngineUnavailable: it cannot be reached, stayed busy, or failed. What was answered is in the journal.
    """
    wanted = {ask.key for ask in asks}
    samples = Samples(
        lines={
            line.ask: line
            for line in parse_lines(journal.lines, model=SampleLine, path=journal.path)
            if line.ask in wanted
        }
    )
    samples.num_kept = len(samples.lines)
    tell = on_answer or (lambda _: None)
    tell(samples.num_kept)
    num_refused = 0

    async def ask_once(ask: Ask) -> None:
        """One prompt may be refused; if all are, something else is wrong."""
        nonlocal num_refused
        try:
            line = await _answer(ask, endpoint=endpoint)
        except (PromptTooLong, RequestRefused) as error:
            num_refused += 1
            hopeless = isinstance(error, RequestRefused) and len(samples.lines) == samples.num_kept
            if hopeless or num_refused >= MANY_REFUSALS:
                raise
            samples.failures.append(f"{ask.problem.source}/{ask.problem.id}, {ask.model}: {error}")
        else:
            journal.write(line.model_dump_json().encode())
            samples.lines[ask.key] = line
            num_refused = 0
        tell(1)

    missing = [ask for ask in asks if ask.key not in samples.lines]
    await run_concurrently(map(ask_once, missing), num_at_once=concurrency)
    return samples


async def _answer(ask: Ask, *, endpoint: Endpoint) -> SampleLine:
    messages = [message.model_dump() for message in ask.messages]
    sampled = await endpoint.answer(messages, model=ask.model, sampling=ask.sampling)
    return SampleLine(
        ask=ask.key, source=ask.problem.source, problem=ask.problem.id, model=ask.model, number=ask.number,
        text=sampled.text, was_cut=sampled.was_cut, num_tokens=sampled.num_tokens,
    )  # fmt: skip
