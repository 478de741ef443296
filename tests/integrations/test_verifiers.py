"""verifiers in a separate environment: its tasks find the judge as a plugin and score with it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.wheels import Environment
from tests.integrations.conftest import Serve

VERIFIERS = "verifiers==0.4.0"

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture
def score(environment: Environment) -> Callable[..., dict[str, Any]]:
    """Scores "It is 4." by a judge with the given settings, and returns the outcome."""
    python = environment(VERIFIERS)

    def run(**judge: Any) -> dict[str, Any]:
        variables = {"PYTHONPATH": str(ROOT / "judge"), "TIRJUDGE_API_KEY": "tj-secret"}
        script = Path(__file__).with_name("verifiers_rollout.py")
        command = [str(python), str(script), json.dumps(judge)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | variables)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_a_task_finds_the_judge_and_is_rewarded(score: Callable[..., Any], serve: Serve) -> None:
    with serve("<score>9</score>") as served:
        outcome = score(base_url=served.url, tools="off")
    ((name, reward),) = outcome["rewards"].items()
    assert name == "verifiers_rollout"
    assert reward["score"] == pytest.approx(8 / 9)
    assert "It is 4." in served.prompts[0]
    assert "four" in served.prompts[0]


def test_the_trace_has_the_judgment_without_the_api_key(score: Callable[..., Any], serve: Serve) -> None:
    with serve("<score>9</score>") as served:
        outcome = score(base_url=served.url, tools="off")
    (call,) = outcome["calls"]
    judgment = json.loads(call["response"]["message"]["content"])
    assert judgment["id"].startswith("jdg_")
    assert call["request"]["responses"] == ["It is 4."]
    assert outcome["usage"][0]["prompt_tokens"] > 0
    assert "tj-secret" not in json.dumps(outcome)


def test_an_abstention_is_an_error_without_a_reward(score: Callable[..., Any], serve: Serve) -> None:
    with serve("<score>9</score>", sandbox="real") as served:
        outcome = score(base_url=served.url, tools="on")
    assert "no_program_ran" in outcome["error"]
    assert outcome["rewards"] == {"verifiers_rollout": None}
    assert len(outcome["calls"]) == 1


def test_an_unreachable_server_is_an_error_without_a_reward(score: Callable[..., Any], nowhere: str) -> None:
    outcome = score(base_url=nowhere, deadline_s=0.5)
    assert "cannot be reached" in outcome["error"]
    assert outcome["rewards"] == {"verifiers_rollout": None}
