"""One sample graded: strings compared, a program run, the judge asked, or several of these put together.

What goes wrong with the grader itself (its program fails, a variable is missing, the judge abstains) gives a reward of 0
with its flag in `errors`, as OpenAI has it. What fails on our side is raised: that is no reward at all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tirjudge.protocol import invalid, parse_json
from tirjudge.types import Judgment, Mode
from tirjudge.web.errors import Refused
from tirjudge_server.call import Call
from tirjudge_server.openai.formula import Formula, FormulaError
from tirjudge_server.openai.graders import (
    Grader,
    GraderInput,
    LabelModel,
    MultiGrader,
    PythonGrader,
    ScoreModel,
    StringCheck,
    TextSimilarity,
)
from tirjudge_server.openai.placeholders import UnknownVariable, fill_in, names_sample
from tirjudge_server.openai.python_grader import GraderFailed, grade
from tirjudge_server.openai.similarity import MAX_CHARS, similarity
from tirjudge_server.openai.wire import judge_request
from tirjudge_server.service import Service

FLAGS = (
    "formula_parse_error",
    "sample_parse_error",
    "truncated_observation_error",
    "unresponsive_reward_error",
    "invalid_variable_error",
    "other_error",
    "python_grader_server_error",
    "python_grader_runtime_error",
    "model_grader_server_error",
    "model_grader_refusal_error",
    "model_grader_parse_error",
)
DETAILS = (
    "python_grader_server_error_type",
    "python_grader_runtime_error_details",
    "model_grader_server_error_details",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """What a grader gives."""

    reward: float
    parts: Mapping[str, float] = field(default_factory=dict)
    """Reward of each part of a multi grader."""
    errors: Mapping[str, Any] = field(default_factory=dict)
    """Flags that are set, and details."""
    num_tokens: int | None = None
    """That the judge read and wrote; None: it was not asked."""


def failed(flag: str, **details: str) -> Graded:
    return Graded(reward=0.0, errors={flag: True, **details})


def sample_of(text: str) -> dict[str, Any]:
    """The `sample` that templates and programs find."""
    try:
        parsed = parse_json(text.encode())
    except (ValueError, RecursionError):
        return {"output_text": text}
    return {"output_text": text, "output_json": parsed}


async def run_grader(service: Service, grader: Grader, *, sample: str, item: Any, call: Call) -> dict[str, Any]:
    """The response object of a run.

    Raises:
        Refused, QueueFull, ShuttingDown, PromptTooLong, EngineUnavailable, SandboxUnavailable, DeadlineExceeded
    """
    started = time.perf_counter()
    values = {"item": {} if item is None else item, "sample": sample_of(sample)}
    try:
        graded = await _grade(service, grader, values=values, call=call)
    except RecursionError:
        raise Refused(invalid("item: nested too deeply", param="item", code="invalid_value")) from None
    model = service.judge.profile.name if graded.num_tokens is not None else None
    return {
        "reward": graded.reward,
        "sub_rewards": dict(graded.parts),
        "model_grader_token_usage_per_model": {} if model is None else {model: graded.num_tokens},
        "metadata": {
            "name": grader.name,
            "type": grader.type,
            "execution_time": time.perf_counter() - started,
            "scores": dict(graded.parts) or {grader.name: graded.reward},
            "sampled_model_name": model,
            "token_usage": graded.num_tokens,
            "errors": {**dict.fromkeys(FLAGS, False), **dict.fromkeys(DETAILS), **graded.errors},
        },
    }


async def _grade(service: Service, grader: Grader, *, values: Mapping[str, Any], call: Call) -> Graded:
    try:
        match grader:
            case StringCheck():
                return Graded(reward=float(_holds(grader, values)))
            case TextSimilarity():
                return await _alike(grader, values)
            case PythonGrader():
                return await _run(service, grader, values=values)
            case ScoreModel():
                return await _score(service, grader, values=values, call=call)
            case LabelModel():
                return await _label(service, grader, values=values, call=call)
            case MultiGrader():
                return await _all_of(service, grader, values=values, call=call)
    except UnknownVariable:
        return failed("invalid_variable_error")


def _holds(grader: StringCheck, values: Mapping[str, Any]) -> bool:
    text, reference = fill_in(grader.input, values), fill_in(grader.reference, values)
    match grader.operation:
        case "eq":
            return text == reference
        case "ne":
            return text != reference
        case "like":
            return reference in text
        case "ilike":
            return reference.lower() in text.lower()


async def _alike(grader: TextSimilarity, values: Mapping[str, Any]) -> Graded:
    text, reference = fill_in(grader.input, values), fill_in(grader.reference, values)
    longest = max(len(text), len(reference))
    if longest > MAX_CHARS:
        message = f"grader.input: {longest} characters given; text_similarity takes {MAX_CHARS}"
        raise Refused(invalid(message, param="grader.input", code="text_too_long"))
    return Graded(reward=await asyncio.to_thread(similarity, text, reference, metric=grader.evaluation_metric))


async def _run(service: Service, grader: PythonGrader, *, values: Mapping[str, Any]) -> Graded:
    """What `grade(sample, item)` of the caller's program gives."""
    sandbox = service.judge.sandbox
    if sandbox is None:
        message = "grader: this server runs no programs; a grader of another type would do"
        raise Refused(invalid(message, param="grader.type", code="no_sandbox"))
    try:
        return Graded(reward=await grade(grader.source, sample=values["sample"], item=values["item"], sandbox=sandbox))
    except GraderFailed as error:
        return failed("python_grader_runtime_error", python_grader_runtime_error_details=str(error))


async def _score(service: Service, grader: ScoreModel, *, values: Mapping[str, Any], call: Call) -> Graded:
    """The sample as the one response to the grader's messages; the expected score of 1 to 10 moved to the range."""
    fields = {
        "mode": Mode.POINTWISE,
        "model": grader.model,
        "prompt": _messages(grader.input, values),
        "responses": [values["sample"]["output_text"]],
        **_sampled(grader),
    }
    judgment = await service.answer(judge_request(fields, service=service), call=call)
    scores = judgment.verdict.scores or [None]
    if scores[0] is None:
        return _abstained(judgment)
    low, high = grader.range
    return Graded(reward=low + (scores[0] - 1) / 9 * (high - low), num_tokens=_num_tokens(judgment))


async def _label(service: Service, grader: LabelModel, *, values: Mapping[str, Any], call: Call) -> Graded:
    """Which of the labels is right about the grader's messages: 1 if it is one of those that pass."""
    messages = _messages(grader.input, values)
    if not any(names_sample(message.content) for message in grader.input):
        messages.append({"role": "assistant", "content": values["sample"]["output_text"]})
    fields = {
        "mode": Mode.PAIRWISE if len(grader.labels) == 2 else Mode.LISTWISE,
        "model": grader.model,
        "prompt": messages,
        "responses": grader.labels,
        **_sampled(grader),
    }
    judgment = await service.answer(judge_request(fields, service=service), call=call)
    best = judgment.verdict.best
    if best is None:
        return _abstained(judgment)
    return Graded(reward=float(grader.labels[best] in grader.passing_labels), num_tokens=_num_tokens(judgment))


def _messages(given: list[GraderInput], values: Mapping[str, Any]) -> list[dict[str, str]]:
    roles = {"developer": "system"}
    return [
        {"role": roles.get(message.role, message.role), "content": fill_in(message.content, values)}
        for message in given
    ]


def _sampled(grader: ScoreModel | LabelModel) -> dict[str, Any]:
    params = grader.sampling_params
    given = {"temperature": params.temperature, "seed": params.seed} if params is not None else {}
    return {name: value for name, value in given.items() if value is not None}


def _abstained(judgment: Judgment) -> Graded:
    return replace(failed("model_grader_refusal_error"), num_tokens=_num_tokens(judgment))


def _num_tokens(judgment: Judgment) -> int:
    return judgment.usage.input_tokens + judgment.usage.output_tokens


async def _all_of(service: Service, grader: MultiGrader, *, values: Mapping[str, Any], call: Call) -> Graded:
    """The parts one after another, each with a name of its own for the call, and the formula over their rewards."""
    parts: dict[str, Graded] = {}
    for number, (name, part) in enumerate(grader.parts.items()):
        key = None if call.idempotency_key is None else f"{call.idempotency_key}/{number}"
        own = replace(Call(), **_shared(call), idempotency_key=key)
        parts[name] = await _grade(service, part, values=values, call=own)
    rewards = {name: part.reward for name, part in parts.items()}
    counted = [part.num_tokens for part in parts.values() if part.num_tokens is not None]
    errors: dict[str, Any] = {}
    for part in parts.values():
        errors |= part.errors
    try:
        reward = Formula(grader.calculate_output, names=frozenset(parts)).value(rewards)
    except FormulaError:
        reward, errors = 0.0, {**errors, "formula_parse_error": True}
    return Graded(reward=reward, parts=rewards, errors=errors, num_tokens=sum(counted) if counted else None)


def _shared(call: Call) -> dict[str, Any]:
    """What the calls of all parts have in common."""
    names = ("dialect", "caller", "priority", "deadline_s", "request_id", "traceparent")
    return {name: getattr(call, name) for name in names}
