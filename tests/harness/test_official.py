"""Official rules: sampling, forced verdicts, the single game, mixed modes, and decisions that were not offered."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.harness.commands import run_command
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.profile import Profile
from tirjudge.right import Decision
from tirjudge.types import JudgeRequest, Mode
from tirjudge_harness.bench_run import RunContext, judge_plan, run_benchmark
from tirjudge_harness.benchmark import BENCHMARKS
from tirjudge_harness.benchmarks.llmbar import agreement_of_orders
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.evaluation import Evaluation, evaluate
from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.items import JudgeSettings
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.planning import RunSettings, plan_run
from tirjudge_harness.protocols import OFFICIAL, PAPER, OfficialSampling, Protocol, find_protocol
from tirjudge_harness.reports.evaluated import evaluation_table
from tirjudge_harness.run import load_run

CODE = {
    "question_id": "q",
    "question_content": "Add the numbers.",
    "difficulty": "easy",
    "pos_response": "print(sum(x))",
    "neg_response": "print(x)",
}


def opened(judge: Judge, **fields: Any) -> OpenJudge:
    return OpenJudge(judge=judge.judge, kind="local", url=None, model="m", fingerprint="f00d", local=judge, **fields)


def context(judge: OpenJudge) -> RunContext:
    return RunContext(opened=judge, concurrency=4, console=Console(file=io.StringIO()))


def pair(*decisions: Decision, id: str = "a", subset: str = "") -> JudgedExample:
    outline = ExampleMetadata(id=id, subset=subset, num_responses=2, correct=(0,), cluster=id)
    mode = Mode.POINTWISE if len(decisions[0].shown) == 1 else Mode.PAIRWISE
    return JudgedExample(outline=outline, mode=mode, decisions=decisions)


def first(evaluation: Evaluation) -> float | None:
    return evaluation.figures[0].value


async def run_code(tmp_path: Path, protocol: Protocol, **fields: Any) -> tuple[Any, list[Any]]:
    """Run CodeJudgeBench with one pair. Return the manifest and the samplings of all turns."""
    (tmp_path / "codegen.jsonl").write_text(json.dumps(CODE) + "\n")
    engine = ScriptedEngine(lambda sequence: "<preference>A</preference>")
    judge = Judge(engine=engine, profile=Profile(name="m"))
    settings = RunSettings(tools="off", protocol=protocol, data=tmp_path / "codegen.jsonl", parts=("codegen",))
    chosen = opened(judge) if not fields else replace(opened(judge), **fields)
    out = tmp_path / protocol.name
    run = await run_benchmark(BENCHMARKS["codejudgebench"], out=out, settings=settings, context=context(chosen))
    return run.manifest, [sampling for _, sampling, _ in engine.calls if sampling.allowed_token_ids is None]


async def test_official_code_fixes_the_sampling_of_a_model_of_ours(tmp_path: Path) -> None:
    manifest, turns = await run_code(tmp_path, OFFICIAL)
    assert manifest.sampling == OfficialSampling(temperature=0.6, top_p=0.95, max_tokens=32_768)
    assert {(turn.temperature, turn.top_p) for turn in turns} == {(0.6, 0.95)}
    assert min(turn.max_tokens for turn in turns) > Profile().rollout_tokens
    plain, turns = await run_code(tmp_path, PAPER)
    assert plain.sampling is None
    assert "sampling" not in plain.model_dump_json()
    assert {(turn.temperature, turn.top_p) for turn in turns} == {(0.0, 1.0)}


async def test_the_sampling_of_a_server_is_its_own(tmp_path: Path) -> None:
    manifest, turns = await run_code(tmp_path, OFFICIAL, local=None)
    assert manifest.sampling is None
    assert {turn.temperature for turn in turns} == {0.0}


def test_the_sampling_is_part_of_the_identity_of_the_judge() -> None:
    judge = opened(Judge(engine=ScriptedEngine([])))
    sampled = judge.sampled_as(OfficialSampling(temperature=0.6))
    assert sampled.identity == judge.identity | {"sampling": {"temperature": 0.6, "top_p": 1.0, "max_tokens": None}}
    assert judge.sampled_as(None) is judge


@pytest.mark.parametrize(
    ("name", "mode", "credit"),
    [
        ("rewardbench", Mode.PAIRWISE, 0.5),
        ("codejudgebench", Mode.PAIRWISE, 0.0),
        ("judgebench", Mode.PAIRWISE, 0.0),
        ("rmbench", Mode.PAIRWISE, 0.0),
    ],
)
def test_a_forced_verdict_counts_as_none_in_the_second_figure(name: str, mode: Mode, credit: float) -> None:
    subset = {"rewardbench": "math-prm", "judgebench": "math", "codejudgebench": "codegen", "rmbench": "chat"}[name]
    shown = ((0, 1), (1, 0))
    right = pair(*(Decision(shown=one, best=0) for one in shown), id="a", subset=subset)
    forced = pair(*(Decision(shown=one, best=0, forced=True) for one in shown), id="b", subset=subset)
    benchmark = replace(BENCHMARKS[name], compared=lambda outline, mode: [(0, 1)])
    evaluation = evaluate(benchmark, [right, forced], mode=mode, protocol=OFFICIAL)
    names = [figure.name for figure in evaluation.figures]
    place = names.index("chat hard") if name == "rmbench" else 0
    if name == "rmbench":  # one comparison of the same style
        place = next(i for i, figure in enumerate(evaluation.figures) if figure.num_marks == 2)
    assert evaluation.figures[place].value == 1.0
    assert evaluation.unforced[place].value == (1 + credit) / 2
    assert [figure.name for figure in evaluation.unforced] == names
    assert evaluation.as_json()["unforced_figures"][place]["value"] == (1 + credit) / 2
    table = evaluation_table(evaluation, title="t")
    assert [column.key for column in table.columns] == ["figure", "value", "unforced", "num"]


def test_without_forced_verdicts_there_is_one_figure() -> None:
    evaluation = evaluate(
        BENCHMARKS["ifbench"], [pair(Decision(shown=(0, 1), best=0))], mode=Mode.PAIRWISE, protocol=PAPER
    )
    assert evaluation.unforced == []
    assert "unforced_figures" not in evaluation.as_json()
    assert len(evaluation_table(evaluation, title="t").columns) == 3


def test_the_paper_protocol_gives_a_forced_verdict_the_official_credit_of_none() -> None:
    forced = pair(Decision(shown=(0, 1), best=0, forced=True), subset="math-prm")
    evaluation = evaluate(BENCHMARKS["rewardbench"], [forced], mode=Mode.PAIRWISE, protocol=PAPER)
    assert (first(evaluation), evaluation.unforced[0].value) == (1.0, 0.5)


def test_forced_votes_still_decide_whether_a_comparison_is_complete() -> None:
    votes = [Decision(shown=(0, 1), best=0, forced=True)] * 2
    evaluation = evaluate(BENCHMARKS["ifbench"], [pair(*votes)], mode=Mode.PAIRWISE, protocol=find_protocol("votes=3"))
    assert (evaluation.counts.missing, first(evaluation), evaluation.unforced[0].value) == (0, 1.0, 0.0)


async def test_a_run_without_forced_verdicts(tmp_path: Path) -> None:
    judge = opened(Judge(engine=ScriptedEngine(lambda sequence: "I cannot say.")))
    benchmark = BENCHMARKS["rewardbench"]
    row = {"id": 1, "prompt": "p", "chosen": "c", "rejected": "r", "subset": "math-prm"}
    examples = list(benchmark.examples(row, "filtered"))
    values = {}
    for forces in (True, False):
        settings = RunSettings(tools="off", protocol=OFFICIAL, force_verdict=forces)
        plan = plan_run(benchmark, examples, opened=judge, settings=settings)
        assert {request.force_verdict for request in plan.requests.values()} == {forces}
        await judge_plan(plan, benchmark=benchmark, out=tmp_path / str(forces), context=context(judge))
        run = load_run(tmp_path / str(forces))
        evaluation = evaluate(benchmark, run.examples, mode=Mode.PAIRWISE, protocol=OFFICIAL)
        values[forces] = (evaluation.counts.forced, evaluation.counts.no_verdict)
        assert ("force_verdict" in run.manifest.model_dump_json()) is not forces
        found = evaluation.figures[0].value if not forces else evaluation.unforced[0].value
        assert found == 0.5
    assert values == {True: (1, 0), False: (0, 1)}


def test_judge_settings_carry_the_option_and_older_files_stay_valid() -> None:
    plain, without = JudgeSettings(), JudgeSettings(force_verdict=False)
    assert "force_verdict" not in plain.configuration
    assert without.configuration["force_verdict"] is False


def test_single_game_counts_ties_and_missing_verdicts_as_wrong() -> None:
    judged = [
        pair(Decision(shown=(0, 1), best=0), Decision(shown=(1, 0), best=1), id="right", subset="math"),
        pair(Decision(shown=(0, 1), tied=True), Decision(shown=(1, 0), best=0), id="tie", subset="math"),
        pair(Decision(shown=(0, 1)), Decision(shown=(1, 0), best=0), id="none", subset="math"),
    ]
    values = {
        name: first(evaluate(BENCHMARKS["judgebench"], judged, mode=Mode.PAIRWISE, protocol=find_protocol(name)))
        for name in ("single_game", "official", "paper")
    }
    assert values == {
        "single_game": pytest.approx(1 / 3),
        "official": pytest.approx(2 / 3),
        "paper": pytest.approx(0.5),
    }


def test_llmbar_null_equals_null_in_agreement_and_a_missing_rating_is_half() -> None:
    same = pair(Decision(shown=(0, 1), best=1), Decision(shown=(1, 0), best=1))
    null = pair(Decision(shown=(0, 1)), Decision(shown=(1, 0)))
    other = pair(Decision(shown=(0, 1), best=1), Decision(shown=(1, 0)))
    assert agreement_of_orders([same, null, other]) == pytest.approx(2 / 3)
    assert agreement_of_orders([pair(Decision(shown=(0, 1), best=1))]) is None
    manual = replace(null, outline=replace(null.outline, subset="manual"))
    found = evaluate(BENCHMARKS["llmbar"], [manual], mode=Mode.PAIRWISE, protocol=OFFICIAL)
    values = {figure.name: figure.value for figure in found.figures}
    assert (values["average"], values["agreement"], values["agreement, manual"]) == (0.0, 1.0, 1.0)
    unrated = pair(Decision(shown=(0,), score=7.0), Decision(shown=(1,)), subset="manual")
    assert first(evaluate(BENCHMARKS["llmbar"], [unrated], mode=Mode.POINTWISE, protocol=OFFICIAL)) == 0.5


def row2(id: str, subset: str, *, num_right: int = 1, num_wrong: int = 3) -> dict[str, Any]:
    right, wrong = [f"right {n}" for n in range(num_right)], [f"wrong {n}" for n in range(num_wrong)]
    return {"id": id, "prompt": f"p {id}", "chosen": right, "rejected": wrong, "subset": subset}


async def test_rewardbench_2_ranks_and_rates_ties_in_one_run(tmp_path: Path) -> None:
    benchmark = BENCHMARKS["rewardbench2-ranking"]
    tasks = ("Factuality", "Precise IF", "Math", "Safety", "Focus")
    rows = [row2(f"{n}", task) for n, task in enumerate(tasks)]
    rows += [row2("ref:1", "Ties", num_wrong=1), row2("tied:1", "Ties", num_right=2, num_wrong=1)]
    examples = [one for row in rows for one in benchmark.examples(row, "test")]

    def answer(sequence: str) -> str:
        shown = [line.split()[0] for line in sequence.splitlines() if line in RESPONSES]
        if len(shown) == 1:
            return f"<score>{9 if shown[0] == 'right' else 2}</score>"
        return f"<best>{'ABCD'[shown.index('right')]}</best> <preference>{'ABCD'[shown.index('right')]}</preference>"

    judge = opened(Judge(engine=ScriptedEngine(answer), profile=Profile(name="m", format="tirjudge/2")))
    requests: list[JudgeRequest] = []
    plan = plan_run(benchmark, examples, opened=judge, settings=RunSettings(tools="off", protocol=OFFICIAL))
    requests += plan.requests.values()
    assert sorted({(request.mode.value, len(request.responses)) for request in requests}) == [
        ("listwise", 4),
        ("pointwise", 1),
    ]
    await judge_plan(plan, benchmark=benchmark, out=tmp_path, context=context(judge))
    run = load_run(tmp_path)
    found = {
        figure.name: figure.value for figure in evaluate(benchmark, run.examples, mode=None, protocol=OFFICIAL).figures
    }
    assert run.manifest.mode is None
    assert found["average without Ties"] == 1.0
    assert found["Ties"] is not None
    assert found["Ties"] > 0.9
    assert found["average"] == pytest.approx((5 + found["Ties"]) / 6)


RESPONSES = {f"{kind} {n}" for kind in ("right", "wrong") for n in range(4)}


def test_an_unranked_example_of_rewardbench_2_counts_a_quarter() -> None:
    outline = ExampleMetadata(id="1", subset="Math", num_responses=4, correct=(0,), cluster="1", mode=Mode.LISTWISE)
    judged = JudgedExample(outline=outline, mode=Mode.LISTWISE, decisions=(Decision(shown=(0, 1, 2, 3)),))
    found = evaluate(BENCHMARKS["rewardbench2-ranking"], [judged], mode=None, protocol=OFFICIAL)
    assert {figure.name: figure.value for figure in found.figures}["Math"] == 0.25


def test_a_decision_that_was_not_offered_is_ignored_where_official_code_ignores_it(write_lines) -> None:
    source = {"source": "mmlu-pro", "question": "?", "response_A": "A", "response_B": "B", "label": "A>B"}
    data = write_lines([{"pair_id": name, **source} for name in "pq"], name="rows.jsonl")
    lines = [{"id": "p", "decisions": ["A>B", "A>A"]}, {"id": "q", "decisions": ["neither", "B>A"]}]
    command = ["bench", "score", "judgebench", "--decisions", str(write_lines(lines)), "--data", str(data), "--json"]
    done = run_command(command)
    found = json.loads(done.stdout)
    assert (found["figures"][0]["value"], found["ignored_decisions"]) == (1.0, 2)
    assert "2 decisions that were not offered count as no verdict" in done.stderr
    assert "line 1: decisions[1]" in done.stderr
    refused = run_command([*command, "--protocol", "paper"])
    assert (refused.status, "decisions[1]" in refused.stderr) == (2, True)
