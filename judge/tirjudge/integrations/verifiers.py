"""Adapter for verifiers: a judge as a judge plugin of a taskset.

    # my_taskset.py: a plugin is found by the name of a module that exports it
    from tirjudge.integrations.verifiers import TirJudge

    __all__ = ["MyTaskset", "TirJudge"]

    # eval.toml
    [[taskset.task.judges]]
    id = "my_taskset"
    base_url = "http://judge:8400"
    api_key_var = "TIRJUDGE_API_KEY"
    answer_field = "answer"

As with every judge plugin of verifiers, a missing verdict raises: the rollout ends in an error and is not scored. The
judgment is recorded in the trace, including its programs.
"""

from __future__ import annotations

from typing import Any, Literal

from verifiers.v1.configs.client import resolve_api_key
from verifiers.v1.configs.judge import JudgeConfig
from verifiers.v1.judge import Judge, JudgeResponse, JudgeView, judge_question, judge_response
from verifiers.v1.types import Usage

from tirjudge.client import AsyncClient
from tirjudge.http import DEFAULT_URL
from tirjudge.integrations.scoring import NoVerdict, score_of
from tirjudge.types import JudgeRequest, Judgment, Mode


class TirJudgeConfig(JudgeConfig):
    """Options of the judge plugin, in addition to those of verifiers."""

    base_url: str = DEFAULT_URL
    """URL of the server."""
    api_key_var: str = "TIRJUDGE_API_KEY"
    """Environment variable with the API key."""
    model: str = ""
    """Name of the judge. Empty: the server's default."""
    question_field: str = ""
    """Field of the task with the question. Empty: the task's prompt."""
    answer_field: str = ""
    """Field of the task with a known good answer. Empty: no reference."""
    view: JudgeView = "last_reply"
    """Part of the trace to judge, as in verifiers."""
    tools: Literal["auto", "on", "off"] = "auto"
    """As in `JudgeRequest`."""
    votes: int = 1
    """As in `JudgeRequest`."""
    require: Literal["checked"] | None = None
    """As in `JudgeRequest`."""
    min_confidence: float | None = None
    """As in `JudgeRequest`."""
    deadline_s: float = 120.0
    """Time limit per judgment, in seconds."""


class TirJudge(Judge[float, TirJudgeConfig]):
    """Judge plugin with rewards from 0 to 1."""

    async def score(self, task: Any, trace: Any) -> float:
        """Return the reward of a trace.

        Raises:
            NoVerdict: the judge abstains.
            RequestRefused, ServerUnavailable, DeadlineExceeded: the judgment could not be made.
        """
        config = self.config
        request = JudgeRequest(
            mode=Mode.POINTWISE,
            prompt=judge_question(task, config.question_field),
            responses=[judge_response(trace, config.view)],
            reference=str(getattr(task, config.answer_field)) if config.answer_field else None,
            model=config.model or None,
            tools=config.tools,
            votes=config.votes,
            require=config.require,
            min_confidence=config.min_confidence,
        )
        key = resolve_api_key(config)
        async with AsyncClient(config.base_url, api_key=None if key == "EMPTY" else key) as client:
            judgment = await client.judge(request, deadline_s=config.deadline_s)
        response = _recorded(judgment)
        trace.record_judge_call(name=self.reward_name, request=request.model_dump(mode="json"), response=response)
        if response.parsed is None:
            raise NoVerdict(f"the judge abstains: {judgment.verdict.reason}")
        return response.parsed


def _recorded(judgment: Judgment) -> JudgeResponse[float]:
    usage = Usage(
        prompt_tokens=judgment.usage.input_tokens,
        completion_tokens=judgment.usage.output_tokens,
        cached_input_tokens=judgment.usage.cached_tokens,
    )
    return JudgeResponse[float](text=judgment.model_dump_json(), parsed=score_of(judgment), usage=usage)
