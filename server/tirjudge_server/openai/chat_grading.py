"""Grade with a chat model besides the judge: its answer is one JSON object with the score or the label."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from string import Template
from typing import Any

from tirjudge.http.protocol import parse_json
from tirjudge.types import Sampling
from tirjudge_server.chat_models import ChatModels, ModelAnswer
from tirjudge_server.openai.graders import LabelModel, ScoreModel

MAX_TOKENS = 2048
"""Maximum number of tokens of an answer."""


class NoGrade(ValueError):
    """The answer of the model has no valid score or label."""


async def ask(
    models: ChatModels, grader: ScoreModel | LabelModel, messages: Sequence[Mapping[str, str]]
) -> ModelAnswer:
    """Send the messages of a grader to its model, with a description of the answer, and return the answer.

    Args:
        models: Has the model of the grader.
        grader: The grader.
        messages: Its filled messages.

    Raises:
        PromptTooLong, ContentFiltered, EngineRefused, EngineBusy, EngineUnavailable: see `ChatEndpoint.ask`.
    """
    params = grader.sampling_params
    sampling = Sampling(
        max_tokens=MAX_TOKENS,
        temperature=0.0 if params is None or params.temperature is None else params.temperature,
        seed=None if params is None else params.seed,
    )
    return await models.ask(grader.model, with_instructions(messages, _instructions(grader)), sampling=sampling)


def with_instructions(messages: Sequence[Mapping[str, str]], instructions: str) -> list[Mapping[str, str]]:
    """Return messages whose system message ends with instructions."""
    if messages[0]["role"] != "system":
        return [{"role": "system", "content": instructions}, *messages]
    return [{"role": "system", "content": f"{messages[0]['content']}\n\n{instructions}"}, *messages[1:]]


def _instructions(grader: ScoreModel | LabelModel) -> str:
    if isinstance(grader, ScoreModel):
        low, high = grader.range
        return _prompt("score_model.txt").substitute(low=f"{low:g}", high=f"{high:g}")
    return _prompt("label_model.txt").substitute(labels=json.dumps(grader.labels, ensure_ascii=False))


@cache
def _prompt(name: str) -> Template:
    file = resources.files("tirjudge_server.openai").joinpath("prompts", name)
    return Template(file.read_text(encoding="utf-8").strip())


def score_in(text: str, *, grader: ScoreModel) -> float:
    """Return the score in an answer.

    Raises:
        NoGrade: It has none within the range of the grader.
    """
    found, (low, high) = _result_in(text), grader.range
    if isinstance(found, bool) or not isinstance(found, int | float) or not low <= found <= high:
        raise NoGrade(f"the answer has no number from {low:g} to {high:g} in `result`")
    return float(found)


def label_in(text: str, *, grader: LabelModel) -> str:
    """Return the label in an answer.

    Raises:
        NoGrade: It has no label of the grader.
    """
    found = _result_in(text)
    if not isinstance(found, str) or found not in grader.labels:
        raise NoGrade("the answer has none of the labels in `result`")
    return found


def _result_in(text: str) -> Any:
    """Return `result` of the JSON object in an answer. Text around the object, such as a code fence, is ignored."""
    try:
        found = parse_json(text[text.find("{") : text.rfind("}") + 1].encode())
    except (ValueError, RecursionError):
        raise NoGrade("the answer is not a JSON object") from None
    if not isinstance(found, dict):
        raise NoGrade("the answer is not a JSON object")
    return found.get("result")
