"""Functions of programs in training: the same ones in sampling, RL and distillation, and never in the loss."""

from __future__ import annotations

import json
import shutil
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.judgments import build_request
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.model import bundled_checkpoint
from tirjudge.tools.python import python_tools
from tirjudge_sandbox import SandboxPool
from tirjudge_sandbox.candidates import FUNCTIONS
from tirjudge_training.config import parse_recipe
from tirjudge_training.policies import EmbeddedPolicy
from tirjudge_training.rollouts import open_policy
from tirjudge_training.sampling import Student

CALLS = "```python\nprint(run('print(6 * 7)').stdout)\n```\n```output"
REQUEST = build_request("Write add.", responses=["a", "b"])


async def test_a_recipe_names_the_functions_of_its_policy() -> None:
    recipe = parse_recipe({"functions": ["run"], "sandbox": {"slots": 1}}, source="test")
    async with AsyncExitStack() as stack:
        policy = await open_policy(bundled_checkpoint(), recipe=recipe, stack=stack)
        assert policy.judge.function_versions == {"run": "1", "run_many": "1", "tests": "1"}


async def test_unknown_functions_of_a_recipe_are_refused() -> None:
    recipe = parse_recipe({"functions": ["oracle"], "sandbox": {"slots": 1}}, source="test")
    async with AsyncExitStack() as stack:
        with pytest.raises(ValueError, match="unknown tool 'oracle'"):
            await open_policy(bundled_checkpoint(), recipe=recipe, stack=stack)


@pytest.mark.slow
async def test_student_and_policy_render_the_same_prompt(pool: SandboxPool, tmp_path: Path) -> None:
    """A student that is shown a different prompt than in serving learns to use tools that it is not offered."""
    checkpoint = tmp_path / "judge"
    shutil.copytree(bundled_checkpoint(), checkpoint)
    file = checkpoint / "judge.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"shows_functions": True}))
    lengths = []
    for functions in ((), FUNCTIONS):
        async with EmbeddedPolicy(checkpoint, sandbox=pool, functions=functions) as policy:
            ids = await policy.judge.encode(REQUEST, order=(0, 1))
            student = Student.load(checkpoint, tools=policy.judge.tools)
            assert await student.judge.encode(REQUEST, order=(0, 1)) == ids
            lengths.append(len(ids))
    assert lengths[0] < lengths[1]


async def test_calls_leave_the_loss_mask_unchanged(pool: SandboxPool) -> None:
    masks = []
    for program in (CALLS, CALLS.replace("run('print(6 * 7)').stdout", "'42' + chr(10)")):
        engine = ScriptedEngine([program, "<preference>A</preference>"])
        judge = Judge(engine=engine, tools=python_tools(pool, functions=FUNCTIONS))
        rollout = await judge.rollout(REQUEST, order=(0, 1), session="s", read_probabilities=False)
        called, verdict = rollout.turns
        assert called.output == "42\n"
        written, shown = len(called.completion.token_ids), len(called.observation_ids)
        num_last = len(verdict.completion.token_ids)
        assert rollout.loss_mask == (1,) * written + (0,) * shown + (1,) * num_last
        masks.append(sum(bit == 0 for bit in rollout.loss_mask))
    assert masks[0] == masks[1]
