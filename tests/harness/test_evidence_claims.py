"""The benchmark `evidence-claims`, and documents of a local folder with the rows of any benchmark."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.profile import Profile
from tirjudge.tools.python import python_tools
from tirjudge.types import JudgeRequest, Judgment, Mode
from tirjudge_evidence.functions import EvidenceSettings, functions_of, open_stores
from tirjudge_evidence.tasks.generating import FUNCTIONS, KINDS
from tirjudge_evidence.tasks.rows import PER_KIND, evidence_rows
from tirjudge_harness.bench_run import RunContext, run_benchmark
from tirjudge_harness.benchmark import BENCHMARKS
from tirjudge_harness.benchmarks.evidenceclaims import BENCHMARK, WITHOUT
from tirjudge_harness.evaluation import evaluate
from tirjudge_harness.items import InputError
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.local_documents import read_documents
from tirjudge_harness.planning import RunSettings, plan_run
from tirjudge_harness.protocols import BOTH_ORDERS, PAPER
from tirjudge_harness.run import BenchmarkRun
from tirjudge_harness.sources import load_examples
from tirjudge_sandbox import SandboxPool

CAPITALS = "Which town is the seat of Ardvale?"
ROWS = [
    {"id": "7", "prompt": CAPITALS, "chosen": ["Brenhold."], "rejected": ["Costmere.", "Dunfell.", "Eastrow."],
     "subset": "Factuality"},
]  # fmt: skip
SEARCHING = """\
text = " ".join(hit["text"] for hit in search("documents", prompt))
print("CHECK", json.dumps({k: int(r.strip(".") in text) for k, r in responses.items()}))
"""


async def run_scripted(
    benchmark_name: str,
    script: Callable[[str], str],
    *,
    out: Path,
    settings: RunSettings,
) -> tuple[BenchmarkRun, list[Judgment]]:
    """Run a benchmark with a scripted model, a real sandbox and real stores."""
    judgments: list[Judgment] = []
    async with SandboxPool(slots=2) as pool, open_stores(EvidenceSettings()) as stores:
        judge = Judge(
            engine=ScriptedEngine(script),
            tools=python_tools(pool, functions=functions_of(stores)),
            profile=Profile(name="scripted", context_tokens=60_000),
        )

        async def judge_one(request: JudgeRequest) -> Judgment:
            judgments.append(await judge.judge(request))
            return judgments[-1]

        opened = OpenJudge(judge=judge_one, kind="local", url=None, model="scripted", fingerprint="gold",
                           functions=judge.function_versions)  # fmt: skip
        context = RunContext(opened=opened, concurrency=2, console=Console(file=io.StringIO()))
        run = await run_benchmark(BENCHMARKS.named(benchmark_name), out=out, settings=settings, context=context)
    return run, judgments


ROWS_HELD_OUT = cache(lambda: evidence_rows(held_out=True))


def gold(sequence: str) -> str:
    """Write the solving program of the row whose question is in the prompt, then the verdict that it prints."""
    row = next(row for row in ROWS_HELD_OUT() if row["prompt"] in sequence)
    _, began, rest = sequence.partition("We look it up.")
    if not began:
        return f"We look it up.\n```python\n{row['program']}```\n```output\n"
    best = rest.rpartition("best ")[2][:1]
    return f"So it is. <preference>{best}</preference>"


@pytest.mark.slow
def test_all_rows_of_all_parts_are_valid() -> None:
    assert BENCHMARKS.named("evidence-claims") is BENCHMARK
    examples = load_examples(BENCHMARK, data=None, parts=("held-out", "training", WITHOUT), on_bad=pytest.fail)
    assert len(examples) == 3 * len(KINDS) * PER_KIND
    given = [one for one in examples if one.evidence]
    assert {one.functions for one in given} == {FUNCTIONS}
    assert {one.functions for one in examples if not one.evidence} == {()}
    assert len(given) == 2 * len(KINDS) * PER_KIND
    right_first = sum(one.outline.correct == (0,) for one in given)
    assert abs(right_first / len(given) - 0.5) < 0.06


async def no_judge(request: JudgeRequest) -> Judgment:
    raise AssertionError("no request is sent")


def opened_with(functions: Sequence[str]) -> OpenJudge:
    return OpenJudge(
        judge=no_judge,
        kind="local",
        url=None,
        model="none",
        fingerprint="none",
        functions=dict.fromkeys(functions, "1"),
    )


def test_a_judge_without_the_functions_is_refused() -> None:
    examples = load_examples(BENCHMARK, data=None, parts=("held-out",), on_bad=pytest.fail)[:2]
    with pytest.raises(InputError, match=r"does not offer the functions is_a, search, sparql, stores; give --tool"):
        plan_run(BENCHMARK, examples, opened=opened_with(["sql"]), settings=RunSettings())


def test_requests_without_evidence_name_no_function() -> None:
    opened = opened_with(FUNCTIONS)
    for part, stores, functions in (("held-out", True, list(FUNCTIONS)), (WITHOUT, False, [])):
        examples = load_examples(BENCHMARK, data=None, parts=(part,), on_bad=pytest.fail)[:5]
        plan = plan_run(BENCHMARK, examples, opened=opened, settings=RunSettings(parts=(part,)))
        for request in plan.requests.values():
            assert (request.evidence is not None, request.functions) == (stores, functions)


@pytest.mark.slow  # programs with queries, each query in a process of its own
async def test_the_gold_programs_are_right_in_both_orders(tmp_path: Path) -> None:
    settings = RunSettings(mode=Mode.PAIRWISE, protocol=BOTH_ORDERS, tools="on", limit=27)
    run, judgments = await run_scripted("evidence-claims", gold, out=tmp_path / "run", settings=settings)
    evaluation = evaluate(BENCHMARK, run.examples, mode=Mode.PAIRWISE, protocol=BOTH_ORDERS)
    figures = {each.name: each.value for each in evaluation.figures}
    assert figures["all"] == 1.0
    assert {figures[kind] for kind in KINDS} == {1.0}
    assert all(judgment.usage.function_calls for judgment in judgments)


def write_documents(folder: Path) -> Path:
    (folder / "7").mkdir(parents=True)
    (folder / "all.txt").write_text("Costmere is a town.\n", encoding="utf-8")
    (folder / "7" / "towns.md").write_text("The seat of Ardvale is Brenhold.\n", encoding="utf-8")
    (folder / "7" / "ignored.html").write_text("Dunfell", encoding="utf-8")
    return folder


async def test_the_documents_of_a_folder_decide_a_row_of_rewardbench_2(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")

    def search(sequence: str) -> str:
        if "We search." not in sequence:
            return f"We search.\n```python\nimport json\n{SEARCHING}```\n```output\n"
        found = json.loads(sequence.rpartition("CHECK ")[2].partition("\n")[0])
        return f"Found. <preference>{max(found, key=found.get)}</preference>"

    settings = RunSettings(data=rows, documents=write_documents(tmp_path / "documents"), tools="on")
    run, judgments = await run_scripted("rewardbench2", search, out=tmp_path / "run", settings=settings)
    benchmark = BENCHMARKS.named("rewardbench2")
    evaluation = evaluate(benchmark, run.examples, mode=Mode.LISTWISE, protocol=PAPER)
    assert {each.name: each.value for each in evaluation.figures}["Factuality"] == 1.0
    assert run.manifest.data.documents_sha256 == read_documents(tmp_path / "documents").sha256
    assert [list(call.sources) for call in judgments[0].rollouts[0].turns[0].calls] == [["documents"]]


def test_an_example_has_its_own_documents_or_those_of_all(tmp_path: Path) -> None:
    documents = read_documents(write_documents(tmp_path))
    own, other = documents.of("7"), documents.of("../7")
    assert own is not None
    assert other is not None
    assert [file.name for file in own.files] == ["towns.md"]
    assert [file.name for file in other.files] == ["all.txt"]
    before = documents.sha256
    (tmp_path / "all.txt").write_text("Costmere is a city.\n", encoding="utf-8")
    assert read_documents(tmp_path).sha256 != before


def test_a_folder_without_documents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        read_documents(tmp_path / "absent")
    with pytest.raises(InputError, match=r"no document; give files with \.txt"):
        read_documents(tmp_path)
    (tmp_path / "large.txt").write_bytes(b"x" * ((4 << 20) + 1))
    with pytest.raises(InputError, match="4,194,305 bytes, a request may have 4,194,304"):
        read_documents(tmp_path)
