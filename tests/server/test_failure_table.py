"""Each cell of the failure table over HTTP: the response of each dialect for each reason of a missing score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.server.speaking import PROGRAM, Speak, speak
from tirjudge.errors import DeadlineExceeded, PromptTooLong, SandboxUnavailable
from tirjudge_server.cost import CostLimits
from tirjudge_server.dialects import DIALECTS, DialectSettings
from tirjudge_server.failure import NATIVE_FAILURES, FailureStyle, MissingScore
from tirjudge_web.errors import QueueFull

__all__ = ["speak"]

FALLBACK = 0.25
CHAT = "<|im_start|>user\nSay hello.<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>"
MESSAGES = [{"role": "user", "content": "Say hello."}, {"role": "assistant", "content": "Hello."}]
RESPONSE = {"id": "resp_1", "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hello."}]}]}
VERIFY = {"responses_create_params": {"input": "Say hello."}, "response": RESPONSE, "verifier_metadata": {"row": 7}}
PAIR = {"mode": "pairwise", "prompt": "p", "responses": ["a", "b"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A request of a dialect with one score."""

    path: str
    body: Any
    unreadable: Any = None
    """A body without anything to judge; None: this dialect has no such body."""
    told: Callable[[httpx2.Response], None]
    """Asserts that the response reports a missing score."""
    takes_query: bool = True
    """Whether the judging options are in the URL query; if not, they are in the body."""


def openrlhf(response: httpx2.Response) -> None:
    body = response.json()
    assert body["rewards"] == body["scores"] == [FALLBACK]
    assert body["extra_logs"]["judge_failed"] == [1.0]


def slime(response: httpx2.Response) -> None:
    assert response.json() == FALLBACK


def slime_object(response: httpx2.Response) -> None:
    assert response.json()["score"] == FALLBACK
    assert response.json()["judge_failed"] == 1.0


def llamafactory(response: httpx2.Response) -> None:
    assert response.json()["scores"] == [FALLBACK]
    assert response.json()["judge_failed"] == [True]


def nemo_verify(response: httpx2.Response) -> None:
    body = response.json()
    assert body["_ng_failure_class"] == body["failure_kind"] == "judge_failed"
    assert body["_ng_failure_judge_error"]
    assert body["mask_sample"] is body["instance_config"]["mask_sample"] is True
    assert body["reward"] == 0.0
    assert body["verifier_metadata"] == {"row": 7}


def nemo_compare(response: httpx2.Response) -> None:
    body = response.json()
    assert body["rewards"] == [3.0, 3.0]
    assert all(row["judge_failed"] for row in body["comparison_results"] or [])


def eval_protocol(response: httpx2.Response) -> None:
    body = response.json()
    assert body["is_score_valid"] is body["metrics"]["judge"]["success"] is False
    assert body["error"]


def systemone(response: httpx2.Response) -> None:
    assert response.json()["answers"]["q"]["type"] == "refusal"


def vllm(response: httpx2.Response) -> None:
    (row,) = response.json()["data"]
    assert row["judge_failed"] is True
    assert FALLBACK in (row.get("score"), *row.get("probs", []), *row.get("data", []))


def cohere(response: httpx2.Response) -> None:
    assert response.json()["results"] == []
    assert response.json()["meta"]["warnings"]


def rewardanything(response: httpx2.Response) -> None:
    assert response.json()["results"] == {"scores": {}, "best-to-worst": []}
    assert "no score" in response.json()["thoughts"]


def native_reward(response: httpx2.Response) -> None:
    (reward,) = response.json()["data"][0]["rewards"]
    assert reward["reward"] is None
    assert reward["status"] in ("abstained", "failed")


def native_rerank(response: httpx2.Response) -> None:
    assert response.json()["best"] is None
    assert all(result["detail"]["reward"] is None for result in response.json()["results"])


def native_batch(response: httpx2.Response) -> None:
    (row,) = response.json()["data"]
    assert row["error"] is not None or row["judgment"]["verdict"]["status"] == "abstained"


NOUL = {"state": "It rains.", "questions": {"q": {"type": "noul", "instructions": "Is it dry?"}}}

EXAMPLES = {
    "reward": Example(path="/v1/reward", body={"prompt": "p", "response": "r"}, told=native_reward, takes_query=False),
    "rerank": Example(
        path="/v1/rerank", body={"prompt": "p", "responses": ["a", "b"]}, told=native_rerank, takes_query=False
    ),
    "batch": Example(path="/v1/judge/batch", body=PAIR, told=native_batch, takes_query=False),
    "openrlhf": Example(path="/get_reward", body={"query": [CHAT]}, unreadable={"query": ["Hm."]}, told=openrlhf),
    "slime": Example(
        path="/rm",
        body={"prompt": MESSAGES[:1], "response": "Hello."},
        unreadable={"prompt": "", "response": "Hello."},
        told=slime,
    ),
    "slime?reward_key": Example(
        path="/rm?reward_key=score",
        body={"prompt": "Say hello.", "response": "Hello."},
        unreadable={"prompt": [], "response": "Hello."},
        told=slime_object,
    ),
    "llamafactory": Example(
        path="/v1/score/evaluation", body={"messages": [CHAT]}, unreadable={"messages": ["Hm."]}, told=llamafactory
    ),
    "nemo_gym": Example(
        path="/verify",
        body=VERIFY,
        unreadable=VERIFY | {"responses_create_params": {}},
        told=nemo_verify,
    ),
    "nemo_gym/compare": Example(
        path="/compare",
        body={"conversation_history": MESSAGES[:1], "response_objs": [RESPONSE, {"output": []}]},
        unreadable={"conversation_history": [], "response_objs": [RESPONSE, {"output": []}]},
        told=nemo_compare,
    ),
    "eval_protocol": Example(
        path="/evaluate", body={"messages": MESSAGES}, unreadable={"messages": MESSAGES[:1]}, told=eval_protocol
    ),
    "systemone": Example(path="/v1/systemone", body=NOUL, told=systemone),
    "vllm_scoring": Example(path="/classify", body={"input": CHAT}, unreadable={"input": "Hm."}, told=vllm),
    "rerank_shapes": Example(path="/v2/rerank", body={"query": "q", "documents": ["a", "b"]}, told=cohere),
    "rewardanything": Example(
        path="/api/rewardanything",
        body={"principle": "Be kind.", "prompt": "p", "responses": {"m": "Hello."}},
        told=rewardanything,
    ),
}

FAILURES = dict.fromkeys(("reward", "rerank", "batch"), NATIVE_FAILURES) | {
    label: row for dialect in DIALECTS.values() for label, row in dialect.rows.items()
}

ERRORS: dict[MissingScore, tuple[Exception, int]] = {
    MissingScore.TOO_LONG: (PromptTooLong("the prompt has 9 tokens"), 400),
    MissingScore.TOO_COSTLY: (AssertionError("nothing is judged"), 413),
    MissingScore.DEADLINE: (DeadlineExceeded("time is up"), 504),
    MissingScore.OVERLOADED: (QueueFull("full", retry_after_s=1.0), 429),
    MissingScore.UNAVAILABLE: (SandboxUnavailable("lost its fork-server"), 503),
}
"""Reason -> the exception that the judge raises, and the HTTP status for style `error`."""


def test_every_row_of_the_table_has_an_example() -> None:
    assert set(FAILURES) == set(EXAMPLES)


async def ask(speak: Speak, example: Example, missing: MissingScore) -> tuple[httpx2.Response, DialectSettings]:
    """Send the example's request to a server where the score is missing for this reason."""
    error = ERRORS[missing][0] if missing in ERRORS else None
    how: dict[str, Any] = {}
    said = PROGRAM
    if missing is MissingScore.ABSTAINED:
        said, how = "<score>7</score> <preference>A</preference>", {"tools": "on"}
    elif missing is MissingScore.PARSE_FAILED:
        said, how = "I cannot say.", {"force_verdict": False}
    body = example.unreadable if missing is MissingScore.UNREADABLE else example.body
    settings = DialectSettings(patience_s=0.0, fallback=FALLBACK)
    path, body = with_options(example, how, body=body)

    def script(sequence: str) -> str:
        # Unreadable and too costly requests are never judged.
        assert missing not in (MissingScore.UNREADABLE, MissingScore.TOO_COSTLY)
        return said

    cost_limits = CostLimits(chars=1) if missing is MissingScore.TOO_COSTLY else None
    async with speak(script, error=error, settings=settings, cost_limits=cost_limits) as client:
        return await client.post(path, json=body), settings


def with_options(example: Example, how: dict[str, Any], *, body: Any) -> tuple[str, Any]:
    """Return path and body of the example's request with these judging options, in the query or in the body."""
    params = {name: str(value).lower() for name, value in how.items()} if example.takes_query else {}
    path = example.path + ("&" if "?" in example.path else "?") + "&".join(f"{k}={v}" for k, v in params.items())
    body = body if example.takes_query else body | how
    body = {"requests": [body]} if example.path == "/v1/judge/batch" else body
    return path.rstrip("?&"), body


CELLS = [
    (dialect, missing)
    for dialect, example in EXAMPLES.items()
    for missing in MissingScore
    if missing is not MissingScore.UNREADABLE or example.unreadable is not None
]


@pytest.mark.parametrize(("dialect", "missing"), CELLS)
async def test_client_gets_the_response_of_its_table_cell(speak: Speak, dialect: str, missing: MissingScore) -> None:
    example = EXAMPLES[dialect]
    style = FAILURES[dialect].style(missing)
    response, settings = await ask(speak, example, missing)
    if style is FailureStyle.ERROR:
        assert response.status_code == ERRORS[missing][1], response.text
        assert ("retry-after" in response.headers) == (response.status_code in (429, 503))
        return
    assert response.status_code == 200, response.text
    example.told(response)
    assert int(response.headers["x-judge-failed"]) >= 1
    if dialect != "batch":
        counted = settings.fallbacks.counts
        assert sum(count for (_, reason), count in counted.items() if reason is missing) >= 1, counted


@pytest.mark.parametrize(
    ("how", "is_met"),
    [
        ({"require": "checked"}, False),
        ({"min_confidence": 0.95}, False),
        ({"min_confidence": 0.75}, True),
    ],
)
@pytest.mark.parametrize("dialect", EXAMPLES)
async def test_a_verdict_that_does_not_meet_the_requirements_is_reported_like_an_abstention(
    speak: Speak, dialect: str, how: dict[str, Any], is_met: bool
) -> None:
    """The verdict has a confidence of 0.8 or 0.9 and rests on no program."""
    example = EXAMPLES[dialect]
    settings = DialectSettings(patience_s=0.0, fallback=FALLBACK)
    path, body = with_options(example, {"tools": "off", **how}, body=example.body)
    said = "<score>7</score> <preference>A</preference>"
    async with speak(lambda sequence: said, settings=settings) as client:
        response = await client.post(path, json=body)
    assert response.status_code == 200, response.text
    assert ("x-judge-failed" in response.headers) is not is_met
    if not is_met:
        example.told(response)
