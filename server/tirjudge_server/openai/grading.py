"""Grade one sample: compare strings, run a program, query the judge, or combine several graders.

A failure of the grader itself (its program fails, a variable is missing, the judge abstains) is a reward of 0 with a flag in
`errors`, as in OpenAI's API. A failure of the server raises an exception instead of returning a reward.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tirjudge.errors import ContentFiltered
from tirjudge.http.protocol import invalid, parse_json
from tirjudge.token_counts import total_of
from tirjudge.types import Judgment, Mode
from tirjudge_server.call import Call
from tirjudge_server.chat_models import NO_MODELS, ChatModels
from tirjudge_server.markers import Ambiguous, ambiguous, first_added, has_roles, turns_in
from tirjudge_server.openai import chat_grading
from tirjudge_server.openai.chat_grading import NoGrade, label_in, score_in
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
from tirjudge_server.openai.placeholders import UnknownVariable, as_text, fill_in, names_sample
from tirjudge_server.openai.python_grader import GraderFailed, grade
from tirjudge_server.openai.similarity import MAX_CHARS, similarity
from tirjudge_server.openai.templates import markers_in
from tirjudge_server.openai.wire import judge_request
from tirjudge_server.service import JudgeService
from tirjudge_web.cost import check_cost, check_json
from tirjudge_web.errors import Refused

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
"""Boolean fields of OpenAI's `errors` object."""
DETAILS = (
    "python_grader_server_error_type",
    "python_grader_runtime_error_details",
    "model_grader_server_error_details",
)
"""Text fields of OpenAI's `errors` object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One use of a model by a grader."""

    model: str
    input_tokens: int | None
    """Number of tokens that the model read. None, as in the other counts: the endpoint does not report it."""
    cached_tokens: int | None
    """Number of these that came from a cache."""
    output_tokens: int | None
    """Number of tokens that the model wrote."""
    output: str
    """What it answered: a score, a label, or the text of a chat model."""
    judgment_id: str | None = None
    """Id of the judgment. None: the model is not the judge."""

    @property
    def num_tokens(self) -> int | None:
        """Number of tokens that the model read and wrote. None: not known."""
        return total_of((self.input_tokens, self.output_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderScore:
    """Result of a grader."""

    reward: float
    parts: Mapping[str, float] = field(default_factory=dict)
    """Reward of each part of a multi grader. Empty for other graders."""
    errors: Mapping[str, Any] = field(default_factory=dict)
    """The flags that are set, and their details. Empty: no error."""
    calls: tuple[ModelCall, ...] = ()
    """The uses of models. Empty: the grader used none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderContext:
    """What the graders of one sample share."""

    service: JudgeService
    """Judges and runs programs."""
    given: Given
    """The variables of templates."""
    call: Call
    """The call to charge and trace."""
    models: ChatModels = NO_MODELS
    """Models besides the judge."""

    def is_judge(self, model: str) -> bool:
        """Whether the judge answers for a model. It answers, with an error, for unknown models too."""
        return model == self.service.judge.profile.name or model not in self.models.names


def failed(flag: str, **details: str) -> GraderScore:
    """Return a reward of 0 with a flag and its details."""
    return GraderScore(reward=0.0, errors={flag: True, **details})


class Given:
    """The template variables of one run, and a budget for the length of its filled templates.

    Args:
        values: `item` and `sample`.
        max_chars: Maximum total length of all filled templates of the run.
    """

    def __init__(self, values: Mapping[str, Any], *, max_chars: int) -> None:
        self.values = values
        self._max_chars = max_chars
        self._num_chars = 0
        self._lengths: dict[int, int] = {}  # id of a value that is not a string -> length of its JSON

    def fill_all(self, texts: Sequence[str]) -> list[str]:
        """Fill templates. Their total length is checked first.

        Raises:
            Refused: 413, the filled templates are too long.
            UnknownVariable: A placeholder names a missing value.
        """
        self.spend(sum(map(self._length, texts)))
        return [fill_in(text, self.values) for text in texts]

    def spend(self, num_chars: int) -> None:
        """Use up part of the budget.

        Raises:
            Refused: 413, the budget is exceeded.
        """
        self._num_chars += num_chars
        check_cost(
            self._num_chars,
            most=self._max_chars,
            what="characters once `sample` and `item` are filled in",
            param="grader",
            remedy="split the grader, or shorten its templates",
        )

    def _length(self, text: str) -> int:
        filled = 0

        def count(value: Any) -> str:
            nonlocal filled
            filled += len(value) if isinstance(value, str) else self._json_length(value)
            return ""

        return len(fill_in(text, self.values, to_text=count)) + filled

    def _json_length(self, value: Any) -> int:
        if id(value) not in self._lengths:
            self._lengths[id(value)] = len(as_text(value))
        return self._lengths[id(value)]


def sample_of(text: str) -> dict[str, Any]:
    """Return the variable `sample`: the text, and its JSON value if the text is JSON.

    Raises:
        Refused: 413, the text is JSON with too many values.
    """
    check_json(text.encode("utf-8", "surrogatepass"), param="model_sample")
    try:
        parsed = parse_json(text.encode())
    except (ValueError, RecursionError):
        return {"output_text": text}
    return {"output_text": text, "output_json": parsed}


async def run_grader(
    service: JudgeService, grader: Grader, *, sample: str, item: Any, call: Call, models: ChatModels = NO_MODELS
) -> dict[str, Any]:
    """Run a grader on a sample. Return the response object.

    Args:
        service: Judges and runs programs.
        grader: The grader.
        sample: The text to grade.
        item: JSON value of the variable `item`.
        call: The call to charge and trace.
        models: Models besides the judge.

    Raises:
        Refused, QueueFull, ShuttingDown, PromptTooLong, EngineUnavailable, SandboxUnavailable, DeadlineExceeded
    """
    started = time.perf_counter()
    values = {"item": {} if item is None else item, "sample": await asyncio.to_thread(sample_of, sample)}
    given = Given(values, max_chars=service.cost_limits.chars)
    graded = await grade_sample(grader, GraderContext(service=service, given=given, call=call, models=models))
    used: dict[str, list[int | None]] = {}
    for each in graded.calls:
        used.setdefault(each.model, []).append(each.num_tokens)
    counts = {model: sum(filter(None, counted)) for model, counted in used.items()}
    return {
        "reward": graded.reward,
        "sub_rewards": dict(graded.parts),
        "model_grader_token_usage_per_model": counts,
        "metadata": {
            "name": grader.name,
            "type": grader.type,
            "execution_time": time.perf_counter() - started,
            "scores": dict(graded.parts) or {grader.name: graded.reward},
            "sampled_model_name": next(iter(counts), None),
            "token_usage": sum(counts.values()) if counts else None,
            "errors": {**dict.fromkeys(FLAGS, False), **dict.fromkeys(DETAILS), **graded.errors},
        },
    }


async def grade_sample(grader: Grader, context: GraderContext) -> GraderScore:
    """Run a grader on a sample. Raises as `run_grader`."""
    try:
        return await _grade(grader, context)
    except RecursionError:
        raise Refused(invalid("item: nested too deeply", param="item", code="invalid_value")) from None


async def _grade(grader: Grader, context: GraderContext) -> GraderScore:
    given = context.given
    try:
        match grader:
            case StringCheck():
                return GraderScore(reward=float(await asyncio.to_thread(_holds, grader, given)))
            case TextSimilarity():
                return await _similarity_score(grader, given)
            case PythonGrader():
                # The program receives its variables as JSON.
                json_length = asyncio.to_thread(lambda: sum(len(json.dumps(value)) for value in given.values.values()))
                given.spend(len(grader.source) + await json_length)
                return await _run(context.service, grader, values=given.values)
            case ScoreModel() | LabelModel() if not context.is_judge(grader.model):
                return await _ask(grader, context)
            case ScoreModel():
                return await _score(grader, context)
            case LabelModel():
                return await _label(grader, context)
            case MultiGrader():
                return await _all_of(grader, context)
    except UnknownVariable:
        return failed("invalid_variable_error")


def _holds(grader: StringCheck, given: Given) -> bool:
    text, reference = given.fill_all([grader.input, grader.reference])
    match grader.operation:
        case "eq":
            return text == reference
        case "ne":
            return text != reference
        case "like":
            return reference in text
        case "ilike":
            return reference.lower() in text.lower()


async def _similarity_score(grader: TextSimilarity, given: Given) -> GraderScore:
    text, reference = await asyncio.to_thread(given.fill_all, [grader.input, grader.reference])
    longest = max(len(text), len(reference))
    if longest > MAX_CHARS:
        message = f"grader.input: {longest} characters given; the limit of text_similarity is {MAX_CHARS}"
        raise Refused(invalid(message, param="grader.input", code="text_too_long"))
    return GraderScore(reward=await asyncio.to_thread(similarity, text, reference, metric=grader.evaluation_metric))


async def _run(service: JudgeService, grader: PythonGrader, *, values: Mapping[str, Any]) -> GraderScore:
    """Run the caller's program and return the result of its `grade(sample, item)`."""
    sandbox = service.judge.sandbox
    if sandbox is None:
        message = "grader: this server has no sandbox to run programs in; use a grader of a different type"
        raise Refused(invalid(message, param="grader.type", code="no_sandbox"))
    try:
        return GraderScore(
            reward=await grade(grader.source, sample=values["sample"], item=values["item"], sandbox=sandbox)
        )
    except GraderFailed as error:
        return failed("python_grader_runtime_error", python_grader_runtime_error_details=str(error))


async def _ask(grader: ScoreModel | LabelModel, context: GraderContext) -> GraderScore:
    """Let a chat model score or label."""
    messages = await asyncio.to_thread(_messages, grader.input, context.given)
    try:
        answer = await chat_grading.ask(context.models, grader, messages)
    except ContentFiltered as error:
        return failed("model_grader_refusal_error", model_grader_server_error_details=str(error))
    call = ModelCall(
        model=grader.model,
        input_tokens=answer.input_tokens,
        cached_tokens=answer.cached_tokens,
        output_tokens=answer.output_tokens,
        output=answer.text,
    )
    try:
        if isinstance(grader, ScoreModel):
            return GraderScore(reward=score_in(answer.text, grader=grader), calls=(call,))
        passed = label_in(answer.text, grader=grader) in grader.passing_labels
        return GraderScore(reward=float(passed), calls=(call,))
    except NoGrade as error:
        return replace(failed("model_grader_parse_error", model_grader_server_error_details=str(error)), calls=(call,))


async def _score(grader: ScoreModel, context: GraderContext) -> GraderScore:
    """Judge the sample as the single response to the grader's messages. Map the expected score from 1-10 to the range.

    Without a sample, the last message is judged as the response to the others.
    """
    service, given = context.service, context.given
    if service.judge.engine.facts.scores:
        message = "grader: this server has a scalar reward model, whose raw scores have no range; use a label_model"
        raise Refused(invalid(message, param="grader.type", code="no_scale"))
    messages = await asyncio.to_thread(_messages, grader.input, given)
    templates, response = grader.input, _sample_text(given)
    if response is None:
        if len(messages) == 1:
            raise UnknownVariable("sample.output_text")
        *messages, last = messages
        templates, response = templates[:-1], last["content"]
    fields = {
        "mode": Mode.POINTWISE,
        "model": grader.model,
        "prompt": await asyncio.to_thread(_checked, messages, templates, values=given.values),
        "responses": [response],
        **_sampled(grader),
    }
    judgment = await service.answer(judge_request(fields, service=service), call=context.call)
    scores = judgment.verdict.scores or [None]
    if scores[0] is None:
        return _abstained(judgment)
    low, high = grader.range
    reward = low + (scores[0] - 1) / 9 * (high - low)
    return GraderScore(reward=reward, calls=(_call_of(judgment, output=f"{reward:g}"),))


async def _label(grader: LabelModel, context: GraderContext) -> GraderScore:
    """Judge which label is right about the grader's messages. The reward is 1 for a passing label, otherwise 0."""
    service, given = context.service, context.given
    messages = await asyncio.to_thread(_messages, grader.input, given)
    text = _sample_text(given)
    if text is not None and not any(names_sample(message.content) for message in grader.input):
        messages.append({"role": "assistant", "content": text})
    await asyncio.to_thread(_checked, messages, grader.input, values=given.values)
    fields = {
        "mode": Mode.PAIRWISE if len(grader.labels) == 2 else Mode.LISTWISE,
        "model": grader.model,
        "prompt": messages,
        "responses": grader.labels,
        **_sampled(grader),
    }
    judgment = await service.answer(judge_request(fields, service=service), call=context.call)
    best = judgment.verdict.best
    if best is None:
        return _abstained(judgment)
    label = grader.labels[best]
    return GraderScore(reward=float(label in grader.passing_labels), calls=(_call_of(judgment, output=label),))


def _sample_text(given: Given) -> str | None:
    """Return the text of the sample. None: the row has no sample."""
    text = given.values["sample"].get("output_text")
    return text if isinstance(text, str) else None


def _messages(templates: list[GraderInput], given: Given) -> list[dict[str, str]]:
    filled = given.fill_all([template.content for template in templates])
    return [
        {"role": template.chat_role, "content": content} for template, content in zip(templates, filled, strict=True)
    ]


def _checked(
    messages: list[dict[str, str]], given: Sequence[GraderInput], *, values: Mapping[str, Any]
) -> list[dict[str, str]]:
    """Return the messages after checking that the sample adds no separator of the grader's prompt.

    Args:
        messages: The messages with the values filled in.
        given: The templates of the messages.
        values: `item` and `sample`.

    Raises:
        Refused: The sample contains a separator, so that the prompt is ambiguous.
    """
    texts = [message["content"] for message in messages]
    turns = [turns_in(text) for text in texts] if has_roles(messages) else []
    markers = [markers_in(text) for text in texts]
    if not any(turns) and not any(markers):
        return messages
    bare = [*_without_sample(given, values), ""][: len(texts)]
    divided = [markers_in(text) for text in bare]
    added = [first_added(found, to=turns_in(text)) for found, text in zip(turns, bare, strict=False)]
    if any(divided):
        added += [first_added(found, to=known) for found, known in zip(markers, divided, strict=True)]
    for marker in filter(None, added):
        why = Ambiguous(marker, "comes from the sample, and separates the texts of the grader's prompt")
        raise ambiguous(why, param="model_sample", fix="use another separator in the grader's prompt")
    return messages


def _without_sample(given: Sequence[GraderInput], values: Mapping[str, Any]) -> list[str]:
    """Return the grader's texts, filled with an empty sample. If the item holds what is judged, it is emptied too."""
    emptied = {**values, "sample": _emptied(values["sample"])}
    if "output_text" not in values["sample"]:
        emptied["item"] = _emptied(values["item"])
    return [fill_in(message.content, emptied, to_text=_as_text_without_names) for message in given]


def _as_text_without_names(value: Any) -> str:
    """Convert a value to text; objects and lists become empty, because an object's names can come from the sample.

    So markers in the names of the item's objects are not found in this text, and are attributed to the sample.
    """
    return value if isinstance(value, str) else "" if isinstance(value, dict | list) else as_text(value)


def _emptied(value: Any) -> Any:
    """Return a JSON value of the same shape, with all strings empty."""
    if isinstance(value, dict):
        return {name: _emptied(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_emptied(part) for part in value]
    return "" if isinstance(value, str) else value


def _sampled(grader: ScoreModel | LabelModel) -> dict[str, Any]:
    params = grader.sampling_params
    given = {"temperature": params.temperature, "seed": params.seed} if params is not None else {}
    return {name: value for name, value in given.items() if value is not None}


def _abstained(judgment: Judgment) -> GraderScore:
    return replace(failed("model_grader_refusal_error"), calls=(_call_of(judgment, output=""),))


def _call_of(judgment: Judgment, *, output: str) -> ModelCall:
    usage = judgment.usage
    return ModelCall(
        model=judgment.model,
        input_tokens=usage.input_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
        output=output,
        judgment_id=judgment.id,
    )


async def _all_of(grader: MultiGrader, context: GraderContext) -> GraderScore:
    """Run the parts one after another, each as a separate call, and apply the formula to their rewards."""
    parts: dict[str, GraderScore] = {}
    for number, (name, part) in enumerate(grader.parts.items()):
        key = None if context.call.idempotency_key is None else f"{context.call.idempotency_key}/{number}"
        own = replace(context.call, judgment_id=Call().judgment_id, idempotency_key=key)
        parts[name] = await _grade(part, replace(context, call=own))
    rewards = {name: part.reward for name, part in parts.items()}
    calls = tuple(each for part in parts.values() for each in part.calls)
    errors: dict[str, Any] = {}
    for part in parts.values():
        errors |= part.errors
    try:
        reward = Formula(grader.calculate_output, names=frozenset(parts)).value(rewards)
    except FormulaError:
        reward, errors = 0.0, {**errors, "formula_parse_error": True}
    return GraderScore(reward=reward, parts=rewards, errors=errors, calls=calls)
