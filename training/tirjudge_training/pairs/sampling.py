"""Samples answers to problems concurrently: a number of answers per model and problem, without repeating earlier ones.

Each answer is written to a journal immediately. Its key is a hash of the request: the conversation, the model, the
sampling settings and the number of the answer. So the same command resumes an interrupted run, and more samples or
models request only the missing answers. With another temperature, all answers are requested again.
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
"""Number of consecutive refused requests after which sampling stops. Sampling also stops if the first request is refused.
"""


class SampleLine(BaseModel):
    """One answer, as stored in the journal."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ask: str
    """Hash of the request."""
    source: str
    """Source of the problem."""
    problem: str
    """Id of the problem."""
    model: str
    number: int
    """Number of the answer among those of this model to this problem, starting at 0."""
    text: str
    was_cut: bool
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPlan:
    """Settings for sampling answers. The defaults are the paper's: two per model, temperature 0.9, top_p 0.95."""

    models: tuple[str, ...]
    num_samples: int = 2
    """Number of answers per model and problem."""
    temperature: float = 0.9
    top_p: float = 0.95
    max_tokens: int = 4096
    """Maximum number of tokens of an answer. Longer answers are not used."""
    seed: int = 0
    """Seed from which the seeds of the answers are derived, if the endpoint supports seeds."""
    concurrency: int = 16
    """Maximum number of concurrent requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One answer to request."""

    problem: TrainingProblem
    model: str
    number: int
    """Number of the answer among those of this model to this problem, starting at 0."""
    messages: tuple[ChatMessage, ...]
    key: str
    """Hash of the request."""
    sampling: Sampling


@dataclass(slots=True)
class Samples:
    """The answers, and the requests that failed."""

    lines: dict[str, SampleLine] = field(default_factory=dict)
    """Key of the request -> answer."""
    num_kept: int = 0
    """Number of answers from earlier runs."""
    failures: list[str] = field(default_factory=list)
    """Refused requests: problem, model and reason. The next run requests them again."""


def asks_of(problems: Sequence[TrainingProblem], *, plan: AnswerPlan) -> list[Ask]:
    """Return all answers to request. The first answer of every problem and model comes before the second ones."""
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
    """Request the answers that are not in the journal.

    Args:
        asks: Answers to request.
        endpoint: Chat endpoint.
        journal: Journal of answers.
        concurrency: Maximum number of concurrent requests.
        on_answer: Called with a number of finished answers: first the number of answers from earlier runs, then 1 for each
            new answer.

    Raises:
        RequestRefused: the endpoint refuses all requests: the key or the model is invalid.
        EngineUnavailable: the endpoint cannot be reached, stayed busy, or failed. The journal keeps the answers so far.
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
    report = on_answer or (lambda _: None)
    report(samples.num_kept)
    num_refused = 0

    async def ask_once(ask: Ask) -> None:
        """Request one answer. A single refusal is recorded; if all requests are refused, the error is raised."""
        nonlocal num_refused
        try:
            line = await _answer(ask, endpoint=endpoint)
        except (PromptTooLong, RequestRefused) as error:
            num_refused += 1
            none_succeeded = isinstance(error, RequestRefused) and len(samples.lines) == samples.num_kept
            if none_succeeded or num_refused >= MANY_REFUSALS:
                raise
            samples.failures.append(f"{ask.problem.source}/{ask.problem.id}, {ask.model}: {error}")
        else:
            journal.write(line.model_dump_json().encode())
            samples.lines[ask.key] = line
            num_refused = 0
        report(1)

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
