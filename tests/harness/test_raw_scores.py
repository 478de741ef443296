"""Raw scores in benchmarks: they are compared as they are, so only their order counts."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from tests.harness.commands import run_command
from tests.tiers import sampled
from tirjudge.engines.scripted import ScriptedScalarEngine
from tirjudge.judge import Judge
from tirjudge.right import Decision
from tirjudge.types import Mode
from tirjudge.verdict import TIED
from tirjudge_harness.bench_run import RunContext, judge_plan
from tirjudge_harness.benchmark import BENCHMARKS, Benchmark
from tirjudge_harness.benchmarks.human_votes import VOTES
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.evaluation import evaluate
from tirjudge_harness.examples import ExampleMetadata, example
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.planning import RunSettings, plan_run
from tirjudge_harness.protocols import OFFICIAL, PAPER, Protocol
from tirjudge_harness.reports.cli import report
from tirjudge_harness.run import load_run

OF_DISTANCES = {
    "rewardbench2": {"Ties", "average"},
    "rewardbench2-ranking": {"Ties", "average"},
    "verifybench": {"VerifyBench", "VerifyBench-Hard"},
}
"""Benchmark -> figures that depend on distances between scores, or on a fixed score that accepts an answer."""

LEVELS = 6
"""Number of different scores."""


def outline(id: str, num_responses: int = 2, *, num_right: int = 1, **fields: Any) -> ExampleMetadata:
    given = {"subset": "", "cluster": id, "correct": tuple(range(num_right))} | fields
    return ExampleMetadata(id=id, num_responses=num_responses, **given)


OF_REWARDBENCH_2 = [
    *(outline(task, 4, subset=task) for task in ("Factuality", "Precise IF", "Math", "Safety", "Focus")),
    outline("ref:1", 2, subset="Ties", cluster="Ties/1"),
    outline("tied:1", 4, num_right=3, subset="Ties", cluster="Ties/1"),
]
OUTLINES: Mapping[str, Sequence[ExampleMetadata]] = {
    "alpacaeval-human": [outline("a", facts={VOTES: [0, 0, 1, 0]}), outline("b", facts={VOTES: [1, 1, TIED, 1]})],
    "codejudgebench": [outline("a", subset="codegen"), outline("b", subset="testgen", tags={"difficulty": "easy"})],
    "codejudgebench-adversarial": [outline("a", subset="codegen"), outline("b", tags={"difficulty": "hard"})],
    "evidence-claims": [outline("a"), outline("b")],
    "forged-code": [outline("a"), outline("b")],
    "ifbench": [outline("a", subset="hard"), outline("b", subset="simple")],
    "judgebench": [outline("a", subset="math"), outline("b", subset="coding", correct=(1,))],
    "judgebench-pro": [outline("a", tags={"domain": "law"}), outline("b", correct=(1,))],
    "llmbar": [outline("a", subset="natural"), outline("b", subset="manual"), outline("c", subset="gptout")],
    "m-rewardbench": [outline("a", subset="deu_Latn/math-prm"), outline("b", subset="zho_Hans/donotanswer")],
    "mt-bench-human": [
        outline("a", subset="turn 1", facts={VOTES: [0, 1, 0]}),
        outline("b", subset="turn 2", facts={VOTES: [1]}),
    ],
    "ppe": [outline("a", subset="math"), outline("b", subset="gpqa", correct=(1,))],
    "ppe-best-of-k": [outline("a", 5, num_right=2, subset="math", facts={"pairs": [[0, 2], [4, 1]]})],
    "ppe-preference": [outline("a", subset="English", tags={"hard": "yes"}), outline("b", tags={"language": "German"})],
    "rewardbench": [outline("a", subset="math-prm"), outline("b", subset="donotanswer"), outline("c", subset="hep-go")],
    "rewardbench2": OF_REWARDBENCH_2,
    "rewardbench2-ranking": OF_REWARDBENCH_2,
    "rmb": [outline("a", 4, subset="BoN_set/Helpfulness"), outline("b", subset="Pairwise_set/Harmlessness")],
    "rmbench": [outline("a", 6, num_right=3, subset="chat"), outline("b", 6, num_right=3, subset="code")],
    "selfcheck": [outline("a", 3, mode=Mode.POINTWISE, tags={"mode": "pointwise"})],
    "verifybench": [outline("a", 1, subset="verify_bench"), outline("b", 1, num_right=0, subset="verify_bench")],
}


def figures(
    benchmark: Benchmark, scores: Sequence[Sequence[float]], *, protocol: Protocol, scalar: bool
) -> dict[str, float | None]:
    judged = [
        JudgedExample(
            outline=one,
            mode=Mode.POINTWISE,
            decisions=tuple(Decision(shown=(i,), score=score, scalar=scalar) for i, score in enumerate(given)),
        )
        for one, given in zip(OUTLINES[benchmark.name], scores, strict=True)
    ]
    mode = Mode.POINTWISE if benchmark.modes else None
    found = evaluate(benchmark, judged, mode=mode, protocol=protocol).figures
    return {one.name: one.value for one in found if one.name not in OF_DISTANCES.get(benchmark.name, ())}


def test_every_installed_benchmark_is_tested() -> None:
    assert BENCHMARKS.keys() == OUTLINES.keys()


@pytest.mark.parametrize("name", sampled(OUTLINES))
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_a_strictly_monotone_transformation_changes_no_figure(name: str, data: st.DataObject) -> None:
    level = st.integers(0, LEVELS - 1)
    levels = [
        data.draw(st.lists(level, min_size=one.num_responses, max_size=one.num_responses)) for one in OUTLINES[name]
    ]
    finite = st.floats(allow_nan=False, allow_infinity=False)
    image = sorted(data.draw(st.lists(finite, min_size=LEVELS, max_size=LEVELS, unique_by=lambda x: x + 0.0)))
    scalar, protocol = data.draw(st.booleans()), data.draw(st.sampled_from([PAPER, OFFICIAL]))
    plain, moved = (
        figures(BENCHMARKS[name], scores, protocol=protocol, scalar=scalar)
        for scores in ([list(map(float, one)) for one in levels], [[image[i] for i in one] for one in levels])
    )
    assert plain == moved


@pytest.mark.parametrize(
    ("name", "scalar", "expected"),
    [
        ("rewardbench", True, 0.0),
        ("rewardbench", False, 0.5),
        ("ifbench", True, 0.0),
        ("ifbench", False, 0.5),
        ("judgebench", True, 0.0),
        ("rmbench", True, 0.0),
    ],
)
def test_official_credit_of_a_tie(name: str, scalar: bool, expected: float) -> None:
    scores = [[1.5] * one.num_responses for one in OUTLINES[name]]
    found = figures(BENCHMARKS[name], scores, protocol=OFFICIAL, scalar=scalar)
    assert next(iter(found.values())) == expected
    assert next(iter(figures(BENCHMARKS[name], scores, protocol=PAPER, scalar=scalar).values())) == 0.5


def test_scores_of_a_file_are_compared_raw_and_may_be_scalar(write_lines) -> None:
    rows = [
        {
            "pair_id": f"p{n}",
            "source": "mmlu-pro",
            "question": f"{n}?",
            "response_A": "A",
            "response_B": "B",
            "label": "A>B",
        }
        for n in range(2)
    ]
    data = write_lines(rows, name="rows.jsonl")
    sigmoid = [1 / (1 + math.exp(-x)) for x in (23.0, 22.5)]
    lines = [{"id": "p0", "scores": sigmoid}, {"id": "p1", "scores": [0.25, 0.25]}]
    command = ["bench", "score", "judgebench", "--decisions", str(write_lines(lines)), "--data", str(data), "--json"]
    found = {
        option: json.loads(run_command([*command, *option.split()]).stdout)["figures"][0]["value"]
        for option in ("", "--protocol paper", "--scalar")
    }
    assert found == {"": 0.5, "--protocol paper": 0.75, "--scalar": 0.5}


def opened() -> OpenJudge:
    judge = Judge(engine=ScriptedScalarEngine(lambda prompt, response: float(len(response)) / 1e6))
    return OpenJudge(judge=judge.judge, kind="classify", url="http://gpu", model="reward", fingerprint=None)


@pytest.mark.parametrize("mode", [Mode.POINTWISE, Mode.PAIRWISE])
@pytest.mark.parametrize("protocol", [OFFICIAL, PAPER])
async def test_a_benchmark_runs_with_a_scalar_judge(tmp_path: Path, mode: Mode, protocol: Protocol) -> None:
    benchmark = BENCHMARKS["judgebench"]
    answers = [("a longer one", "short"), ("tiny", "the longest of all"), ("equal", "equal")]
    rows = [
        example(id=f"e{n}", prompt=f"p{n}", responses=pair, correct=(0,), subset="math")
        for n, pair in enumerate(answers)
    ]
    plan = plan_run(benchmark, rows, opened=opened(), settings=RunSettings(mode=mode, protocol=protocol))
    context = RunContext(opened=opened(), concurrency=4, console=Console(file=io.StringIO()))
    await judge_plan(plan, benchmark=benchmark, out=tmp_path, context=context)
    run = load_run(tmp_path)
    found = evaluate(benchmark, run.examples, mode=mode, protocol=protocol)
    assert (found.counts.right, found.counts.wrong, found.counts.ties, found.counts.missing) == (1, 1, 1, 0)
    assert found.figures[0].value == pytest.approx((1 if protocol is OFFICIAL else 1.5) / 3)
    report([tmp_path])  # every table, such as calibration, can be computed
