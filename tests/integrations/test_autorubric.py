"""autorubric in a separate environment: its grader uses the judge as a decision model, criterion by criterion."""

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

AUTORUBRIC = "autorubric[typesafe]==1.6.1"

pytestmark = pytest.mark.slow


@pytest.fixture
def grade(environment: Environment) -> Callable[[str], dict[str, Any]]:
    """Grades "It is 4." with a server, and returns the outcome."""
    python = environment(AUTORUBRIC)

    def run(url: str) -> dict[str, Any]:
        script = Path(__file__).with_name("autorubric_grading.py")
        variables = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        done = subprocess.run(
            [str(python), str(script), url], capture_output=True, text=True, timeout=300, env=variables
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_a_rubric_is_graded_criterion_by_criterion(grade: Callable[[str], Any], serve: Serve) -> None:
    with serve("<preference>A</preference>", label_probs={"A": 0.9, "B": 0.1}, sandbox="real") as served:
        outcome = grade(served.url)
        prompts = sorted(served.prompts, key=lambda prompt: "is rude" in prompt)
    assert "It is 4." in prompts[0]
    yes_is_first = ["<response_a>\nYes" in prompt for prompt in prompts]
    assert outcome["verdicts"] == ["MET" if yes else "UNMET" for yes in yes_is_first]
    assert [found["MET"] for found in outcome["probabilities"]] == [
        pytest.approx(0.9 if yes else 0.1) for yes in yes_is_first
    ]
    assert outcome["error"] is None


def test_a_failed_judgment_gives_no_grade(grade: Callable[[str], Any], serve: Serve) -> None:
    with serve([], sandbox="real") as served:
        outcome = grade(served.url)
    assert outcome["verdicts"] == ["CANNOT_ASSESS", "CANNOT_ASSESS"]
    assert outcome["score"] is None
