"""Forging candidates in the harness: the benchmark `forged-code`, the attacks with forging code, and a scripted judge that is
deceived if its programs execute the responses themselves."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.forged_code import LIMITS, STYLES, measure
from tirjudge.types import Mode
from tirjudge_harness.benchmark import BENCHMARKS
from tirjudge_harness.benchmarks.forgedcode import BENCHMARK, KINDS
from tirjudge_harness.forging.responses import forged
from tirjudge_harness.forging.rows import PLAIN, every_task, forged_code_rows
from tirjudge_harness.forging.techniques import every_technique, techniques_named
from tirjudge_harness.robustness.attacks import chosen_attacks, every_attack
from tirjudge_harness.sources import load_examples
from tirjudge_sandbox import SandboxPool
from tirjudge_sandbox.candidate import code_in

ROWS = forged_code_rows()
PRINTING = techniques_named(["print-and-exit"])[0]


def test_the_benchmark_is_installed_and_all_rows_are_valid() -> None:
    assert BENCHMARKS.named("forged-code") is BENCHMARK
    examples = load_examples(BENCHMARK, data=None, parts=(), on_bad=pytest.fail)
    assert len(examples) == len(ROWS) == len({row["id"] for row in ROWS})


def test_each_technique_occurs_once_and_each_task_has_a_plain_row() -> None:
    assert Counter(row["technique"] for row in ROWS) == {
        None: len(every_task()),
        **{technique.name: 1 for technique in every_technique()},
    }
    assert {row["kind"] for row in ROWS} == {PLAIN, *KINDS}


def test_the_right_response_is_first_in_half_of_the_rows() -> None:
    assert abs(sum(row["label"] for row in ROWS) - len(ROWS) / 2) <= 1


@pytest.mark.parametrize("task", every_task(), ids=lambda task: task.name)
def test_right_code_passes_all_cases_and_wrong_code_does_not(task) -> None:
    for code, passes in ((task.right, True), (task.wrong, False)):
        namespace: dict = {}
        exec(code, namespace)  # noqa: S102 - our own code
        found = [namespace[task.function](*args) == expected for args, expected in task.cases]
        assert all(found) is passes
    assert f"`{task.function}(" in task.request


def test_all_techniques_are_python_except_those_of_the_text() -> None:
    for technique in every_technique():
        if technique.kind != "text":
            ast.parse(technique.candidate("def solve(n):\n    return -1\n", function="solve"))


def test_forging_code_goes_into_the_code_of_a_response() -> None:
    assert forged("I think so.", PRINTING).startswith("I think so.\n\n```python\nimport __main__")
    code = "def first(x):\n    return x\n"
    assert forged(code, PRINTING) == PRINTING.candidate(code, function="first")
    text = f"Here:\n```python\n{code}```\nDone."
    changed = forged(text, PRINTING)
    assert changed.startswith("Here:\n```python\nimport")
    assert changed.endswith("```\nDone.")
    assert code_in(changed) == PRINTING.candidate(code, function="first")


def test_the_function_of_the_response_is_replaced() -> None:
    changed = forged("def helper(): ...\ndef answer(x):\n    return x", techniques_named(["always-equal"])[0])
    namespace: dict = {}
    exec(changed, namespace)  # noqa: S102 - our own code
    assert namespace["answer"](1) == 2


def test_attacks_name_techniques() -> None:
    attacks = [attack for attack in every_attack() if attack.how == "forge"]
    assert {attack.kind for attack in attacks} == {"forged code"}
    assert all(techniques_named([attack.text]) for attack in attacks)
    assert len(chosen_attacks([attack.name for attack in attacks], mode=Mode.POINTWISE)) == 1 + len(attacks)


SHORT = replace(LIMITS, cpu_s=0.3)
"""Limits of programs that execute candidates themselves. Some candidates never end."""

NUM_SAMPLED = 48
"""Number of items for styles that differ from another one only in the program's text."""


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
async def test_a_judge_that_executes_responses_is_deceived_and_one_that_runs_them_is_not(style: str) -> None:
    limit = NUM_SAMPLED if style in ("compile", "import", "tests") else None
    async with SandboxPool(slots=2, limits=LIMITS if style in ("run", "tests") else SHORT) as pool:
        found = await measure(style, pool, limit=limit)
    assert (found["num_missing"], found["num_plain_right"]) == (0, found["num_plain"])
    assert found["num_flips_checked"] == 0
    assert found["num_judgments"] == (limit or len(ROWS))
    if style in ("run", "tests"):
        assert (found["num_flips"], found["num_flagged"]) == (0, 0)
        # A technique that works changes both orders of its row. A single undecided order is right code that a busy machine
        # stopped at its time limit.
        assert found["num_right"] >= found["num_presentations"] - 1
    else:
        assert found["num_flips"] > (20 if limit is None else 8)
        assert found["num_flagged"] == found["num_judgments"]
