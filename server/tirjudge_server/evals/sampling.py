"""Let a model write the sample of a row: the messages of the run are filled with the row, and sent to a chat endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tirjudge.http.protocol import invalid, shown
from tirjudge.types import Sampling
from tirjudge_server.chat_models import ChatModels, ModelAnswer
from tirjudge_server.evals.definitions import (
    MAX_MESSAGES,
    EvalCreation,
    ItemReference,
    RecordsConfig,
    RecordsSource,
    RunCreation,
    SampledData,
    SampleParams,
)
from tirjudge_server.openai.graders import LabelModel, MultiGrader, PlainMessage, ScoreModel
from tirjudge_server.openai.grading import Given
from tirjudge_server.openai.placeholders import value_at
from tirjudge_server.openai.wire import parsed, refuse
from tirjudge_web.errors import Refused

FROM_RECORD = ItemReference(type="item_reference", item_reference="item.input")
"""The messages of a row that is a record."""


def check_models(body: EvalCreation, *, models: ChatModels, judge: str) -> None:
    """Check that all models of an eval's graders exist.

    Raises:
        Refused: 404, one does not exist.
    """
    for number, criterion in enumerate(body.testing_criteria):
        parts = criterion.parts.values() if isinstance(criterion, MultiGrader) else [criterion]
        for part in parts:
            if isinstance(part, ScoreModel | LabelModel):
                models.check(part.model, param=f"testing_criteria.{number}.model", others=[judge])


def check_run(body: RunCreation, *, config: Any, models: ChatModels) -> None:
    """Check that this server can run the data source of a run.

    Args:
        body: The run.
        config: The data source configuration of its eval.
        models: Models that can write samples.

    Raises:
        Refused: The model is unknown, or tools or a filter are given that this server does not support.
    """
    data = body.data_source
    source = data.source
    if isinstance(source, RecordsSource):
        if source.unsupported:
            name = source.unsupported[0]
            hint = "the records of this server have no such field; use model, created_after, created_before and limit"
            raise refuse(f"data_source.source.{name}", getattr(source, name), hint=hint)
        if isinstance(config, RecordsConfig) and config.metadata:
            hint = "set by the eval, but the records of this server have no metadata; create an eval without it"
            raise refuse("data_source_config.metadata", config.metadata, hint=hint)
    if not isinstance(data, SampledData):
        return
    if tools := data.sampling_params.tools:
        names = ", ".join(shown(_tool_name(tool)) for tool in tools[:8])
        message = f"data_source.sampling_params.tools: {names} given; this server samples without tools; remove them"
        raise Refused(invalid(message, param="data_source.sampling_params.tools", code="unsupported_parameter"))
    if data.model is not None:
        models.check(data.model, param="data_source.model")


def _tool_name(tool: Any) -> str:
    if not isinstance(tool, Mapping):
        return "a tool"
    function = tool.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    return str(name or tool.get("name") or tool.get("type") or "a tool")


def messages_for(data: SampledData, given: Given) -> list[dict[str, str]]:
    """Return the messages that the model answers about a row.

    Args:
        data: The data source of the run.
        given: The variables of the row.

    Raises:
        UnknownVariable: The row has no value for a placeholder.
        Refused: The filled messages are too long, or the row's messages are invalid.
    """
    asked = data.input_messages or FROM_RECORD
    if isinstance(asked, ItemReference):
        found = value_at(asked.item_reference, given.values)
        if isinstance(found, str):
            found = [{"role": "user", "content": found}]
        if not isinstance(found, list) or not 0 < len(found) <= MAX_MESSAGES:
            message = f"{asked.item_reference}: expected: a list of 1 to {MAX_MESSAGES} messages"
            raise Refused(invalid(message, param=asked.item_reference, code="invalid_value"))
        messages = [parsed(each, PlainMessage) for each in found]
        given.spend(sum(len(each.content) for each in messages))
        return [{"role": each.chat_role, "content": each.content} for each in messages]
    filled = given.fill_all([template.content for template in asked.template])
    return [
        {"role": template.chat_role, "content": content}
        for template, content in zip(asked.template, filled, strict=True)
    ]


async def write_sample(data: SampledData, given: Given, *, models: ChatModels) -> dict[str, Any]:
    """Let the model of a run write the sample of a row. Return the sample, as output items show it.

    Raises:
        UnknownVariable, Refused: see `messages_for`.
        PromptTooLong, ContentFiltered, EngineRefused, EngineBusy, EngineUnavailable: see `ChatEndpoint.ask`.
    """
    assert data.model is not None
    messages = await asyncio.to_thread(messages_for, data, given)
    params = data.sampling_params
    sampling = Sampling(
        max_tokens=params.max_completion_tokens, temperature=params.temperature, top_p=params.top_p, seed=params.seed
    )
    answer = await models.ask(data.model, messages, sampling=sampling, extra=params.extra)
    return {
        **empty_sample(model=data.model, params=params),
        "input": messages,
        "output": [{"role": "assistant", "content": answer.text}],
        "finish_reason": answer.finish_reason,
        "usage": usage_of(answer),
    }


def usage_of(answer: ModelAnswer) -> dict[str, int]:
    """Return the token counts of an answer. Counts that the endpoint does not report are 0."""
    read, written = answer.input_tokens or 0, answer.output_tokens or 0
    return {
        "total_tokens": read + written,
        "completion_tokens": written,
        "prompt_tokens": read,
        "cached_tokens": answer.cached_tokens or 0,
    }


def empty_sample(*, model: str, params: SampleParams) -> dict[str, Any]:
    """Return the sample of an output item without its texts."""
    return {
        "input": [],
        "output": [],
        "finish_reason": "stop",
        "model": model,
        "usage": {"total_tokens": 0, "completion_tokens": 0, "prompt_tokens": 0, "cached_tokens": 0},
        "error": None,
        "temperature": params.temperature,
        "max_completion_tokens": params.max_completion_tokens,
        "top_p": params.top_p,
        "seed": params.seed,
    }
