"""Recompute published numbers with this project's metrics, and report differences.

    python benchmarks/crosscheck.py FOLDER --tables FOLDER_OF_CSV --json benchmarks/results/crosscheck.json

FOLDER contains `expected.json`, a list of cases. The files that a case names are in the same folder; files with graded
responses may also be in the parent folder. No judge runs: the verdicts, scores, answers and program outcomes are
those published by the authors, and the project's metrics are computed from them. FOLDER_OF_CSV contains tables 1, 2 and 5
of the TIR-Judge paper as CSV.

A figure agrees if it equals the printed one after rounding or truncation. Any other difference needs a known reason; the
exit status is 1 if a difference has none.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, get_args

import typer
from crosscheck_figures import EVERYTHING, Check, Verdict, compared, figure_of, marks_with, value
from crosscheck_tables import average_of_six, rmbench_marks, table_checks
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from tirjudge_harness.benchmark import BENCHMARKS
from tirjudge_harness.best_of_n.datasets import BestOfNProblem, read_problems
from tirjudge_harness.best_of_n.graders.ifeval import Following, Instructions, following, tally
from tirjudge_harness.best_of_n.grading import GradedResponse, Grading, open_grader
from tirjudge_harness.best_of_n.results import MAJORITY, ORACLE, PASS_AT_1, baselines
from tirjudge_harness.evaluation import evaluate
from tirjudge_harness.external import read_decisions
from tirjudge_harness.metric_tree import Mean
from tirjudge_harness.protocols import OFFICIAL

Case = dict[str, Any]

RANDOM_LETTERS = "for two prompts the official checker draws a random letter, so the published figure may be lower"
ROUNDED_TWICE = "published: the mean of the four printed figures, rounded a second time"
NUMBERS = ("published", "ours", "difference")
THOUSANDS = (
    r"one of 800 answers is 10000 where 10{,}000 is expected; our grader accepts it, the authors' grader rejects it"
)


def main(
    folder: Annotated[Path, typer.Argument(help="Folder with expected.json.")],
    tables: Annotated[Path | None, typer.Option(help="Folder with the tables as CSV.")] = None,
    out: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")] = None,
) -> None:
    """Recompute published figures. Exit with status 1 if a figure differs for no known reason."""
    console = Console(stderr=True)
    checks: list[Check] = []
    for case in json.loads((folder / "expected.json").read_text(encoding="utf-8"))["cases"]:
        console.print(case["id"], markup=False, highlight=False)
        if case["kind"] != "tir":
            checks += KINDS[case["kind"]](case, folder)
        elif tables is not None:
            checks += table_checks(tables)
        else:
            console.print("  skipped: --tables is not given")
    Console(width=240).print(_table(checks))
    counts = {verdict: [one.verdict for one in checks].count(verdict) for verdict in get_args(Verdict)}
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    if out is not None:
        figures = ",\n".join(json.dumps(asdict(one)) for one in checks)
        out.write_text(f'{{"counts": {json.dumps(counts)}, "figures": [\n{figures}\n]}}\n', encoding="utf-8")
    if counts["differs"]:
        raise typer.Exit(1)


def _table(checks: Sequence[Check]) -> Table:
    table = Table("case", "figure", *(Column(name, justify="right") for name in NUMBERS), "", box=None, pad_edge=False)
    for one in checks:
        verdict = one.verdict if not one.why else f"{one.verdict}: {one.why}"
        numbers = (f"{one.published:.10g}", f"{one.ours:.8g}", f"{one.difference:+.2g}")
        table.add_row(escape(one.case), escape(one.figure), *numbers, escape(verdict))
    for column in table.columns[:-1]:
        column.no_wrap = True
    return table


def _file(case: Case, folder: Path) -> Path:
    """Return the path of a case's file, in the folder or in its parent."""
    there = folder / case["file"]
    return there if there.exists() else folder.parent / Path(case["file"]).name


def _lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def judgebench(case: Case, folder: Path) -> Iterator[Check]:
    """Check the metrics of the official rule, computed from verdicts in both orders or from scores of reward models. A
    sigmoid of the scores keeps their order, so it changes no metric."""
    benchmark = BENCHMARKS.named("judgebench")
    wanted = case["select"]
    rows = [row for row in _lines(_file(case, folder)) if all(row[key] == wanted[key] for key in wanted)]
    outlines = []
    for row in rows:
        made = {**row, "question": row["pair_id"], "response_A": "A", "response_B": "B"}
        outlines += [example.outline for example in benchmark.examples(made, row["split"])]
    macro = Mean(name="macro", parts=benchmark.sheet[1:])
    for kind in ("decisions", "scores", "sigmoid of scores"):
        field = kind.removeprefix("sigmoid of ")
        if rows[0][field] is None:
            continue
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            # Both orders of a pair have the same scores, swapped.
            said = [row[field] if field == "decisions" else row[field][0] for row in rows]
            if kind != field:
                said = [[1 / (1 + math.exp(-score)) for score in one] for one in said]
            lines = [{"id": row["pair_id"], field: one} for row, one in zip(rows, said, strict=True)]
            file.writelines(json.dumps(line) + "\n" for line in lines)
            file.flush()
            judged = read_decisions(Path(file.name), outlines)
        evaluation = evaluate(benchmark, judged, mode=judged[0].mode, protocol=OFFICIAL)
        ours = {figure.name: 100 * (figure.value or 0.0) for figure in evaluation.figures}
        ours["macro"] = 100 * value(macro, evaluation.marks)
        for name, official in case["official_code_output"].items():
            yield compared(case["id"], f"{name}, {kind}", published=official, ours=ours[name], digits=2)
        printed = case.get("published", {})
        for name in printed:
            reason = ROUNDED_TWICE if name == "macro" and _is_mean_of_others(printed) else ""
            figure = f"{name}, {kind}, printed"
            yield compared(case["id"], figure, published=printed[name], ours=ours[name], digits=1, reason=reason)


def _is_mean_of_others(printed: dict[str, float]) -> bool:
    others = [figure for name, figure in printed.items() if name != "macro"]
    return abs(sum(others) / len(others) - printed["macro"]) <= 0.05 + 1e-9


def rewardbench_sections(case: Case, folder: Path) -> Iterator[Check]:
    """Check the sections and the average, computed from the accuracies of the subsets."""
    benchmark = BENCHMARKS.named("rewardbench")
    average = figure_of(benchmark, "average")
    assert isinstance(average, Mean)
    nums = {part.name: int(weight) for section in average.parts if isinstance(section, Mean)
            for part, weight in zip(section.parts, section.weights or (), strict=True)} | {"math-prm": 447}  # fmt: skip
    for judge, tables in json.loads(_file(case, folder).read_text(encoding="utf-8")).items():
        shares = tables["rewardbench_subsets"]
        marks = marks_with(shares, nums=nums)
        ours = {node.name: value(node, marks) for node in average.parts}
        ours |= {"avg_Result_each_section": value(average, marks), "absoluate_Result": value(EVERYTHING, marks)}
        for name, published in tables["rewardbench_sections"].items():
            yield compared(f"{case['id']}: {judge}", name, published=published, ours=ours[name])


def rmbench_aggregate(case: Case, folder: Path) -> Iterator[Check]:
    """Check the overall figure, computed from the domains and from the difficulties."""
    overall = figure_of(BENCHMARKS.named("rmbench"), "overall")
    domains = ("chat", "math", "code", "safety")
    for judge, tables in json.loads(_file(case, folder).read_text(encoding="utf-8")).items():
        published = tables["rmbench"]
        by_domain = rmbench_marks({(domain, None): published[domain] for domain in domains})
        by_difficulty = rmbench_marks(
            {(domain, each): published[f"{each}_acc"] for domain in domains for each in ("hard", "normal", "easy")}
        )
        for name, marks in (("domains", by_domain), ("difficulties", by_difficulty)):
            yield compared(
                f"{case['id']}: {judge}",
                f"overall from {name}",
                published=published["total_avg_acc"],
                ours=value(overall, marks),
            )


def rewardbench2_average(case: Case, folder: Path) -> Iterator[Check]:
    """Check the average of six tasks, computed from figures printed with one decimal."""
    average = average_of_six()
    table = json.loads(_file(case, folder).read_text(encoding="utf-8"))
    for judge, (printed, *parts) in table["rows"]:
        columns = ["Precise IF" if name == "IF" else name for name in table["columns"][1:]]
        shares = {name: part / 100 for name, part in zip(columns, parts, strict=True)}
        ours = 100 * value(average, marks_with(shares))
        yield compared(f"{case['id']}: {judge}", "average", published=printed, ours=ours, digits=1, slack=0.1)


def code_outcomes(case: Case, folder: Path) -> Iterator[Check]:
    """Check pass@1, computed from outcomes of programs. HumanEval+ and MBPP+ also require that the base tests pass."""
    for run in _lines(_file(case, folder)):
        published = run["published"]
        rates = {"": published} if "pass@1" in published else published
        for name, rate in rates.items():
            credits = {problem: _credit(outcomes[0], tests=name) for problem, outcomes in run["status"].items()}
            yield compared(
                f"{case['id']}: {run['benchmark']}, {run['model']}",
                f"{name} pass@1".strip(),
                published=rate["pass@1"],
                ours=100 * value(EVERYTHING, marks_with(credits)),
                digits=1 if name else None,
            )


def _credit(outcome: Any, *, tests: str) -> float:
    """Return 1.0 if a program passes, otherwise 0.0. `outcome` is one status, or a pair: base and additional tests."""
    if not tests:
        return float(outcome == "pass")
    return float(outcome == ["pass", "pass"] if tests.endswith("+") else outcome[0] == "pass")


def ifeval(case: Case, folder: Path) -> Iterator[Check]:
    """Check counts of followed instructions. Expected counts are ranges, because the official checker's result is random for
    two prompts."""
    problems = _problems(_file(case, folder))
    ours = [following(one.responses[0], Instructions.model_validate(dict(one.facts))) for one in problems]
    most = tally(ours)
    least = tally(_unlucky(one, problem) for one, problem in zip(ours, problems, strict=True))
    for name, (low, high) in case["expect"].items():
        yield compared(case["id"], f"{name}, lowest count", published=low, ours=getattr(least, name))
        yield compared(case["id"], f"{name}, highest count", published=high, ours=getattr(most, name))
        of = most.num_prompts if name.startswith("prompt") else most.num_instructions
        printed = case["published"][name]
        is_between = low <= round(printed * of / 100) <= high
        yield compared(
            case["id"],
            f"{name}, printed %",
            published=printed,
            ours=100 * getattr(most, name) / of,
            digits=2,
            reason=RANDOM_LETTERS if is_between else "",
        )


def _unlucky(one: Following, problem: BestOfNProblem) -> Following:
    """Return the result for the worst case: no instruction with a randomly drawn letter is followed."""
    if not problem.facts.get("nondeterministic_in_official_code"):
        return one
    kept = [kind != "keywords:letter_frequency" for kind in problem.facts["instruction_id_list"]]
    return Following(
        strict=tuple(followed and keep for followed, keep in zip(one.strict, kept, strict=True)),
        loose=tuple(followed and keep for followed, keep in zip(one.loose, kept, strict=True)),
    )


def gsm8k(case: Case, folder: Path) -> Iterator[Check]:
    """Check the accuracy of four models and of an oracle over their answers, with the file's grades and with ours."""
    problems = _problems(_file(case, folder))
    for by, graded in (("given", _given(problems)), ("our grader", asyncio.run(_graded(problems, grader="gsm8k")))):
        for place, published in enumerate(case["expect"]["acc"]):
            yield _percent(
                case, f"model {place}, {by}", published=published, credits=[one.credits[place] for one in graded]
            )
        best = baselines(graded)[ORACLE]
        yield _percent(case, f"oracle, {by}", published=case["expect"]["oracle"], credits=best)


def _percent(case: Case, figure: str, *, published: float, credits: Sequence[float]) -> Check:
    return compared(case["id"], figure, published=published, ours=100 * fmean(credits), digits=2)


def competition_math(case: Case, folder: Path) -> Iterator[Check]:
    """Check majority vote, reward model and oracle on 100 problems of 8 answers, with the file's grades and with ours."""
    problems = _problems(_file(case, folder))
    given, ours = _given(problems), asyncio.run(_graded(problems, grader="math"))
    for by, graded, reason in (("given", given, ""), ("our grader", ours, _why_grades_differ(given, ours))):
        worth = baselines(graded)
        highest = [
            one.credits[max(range(len(one.credits)), key=lambda index: problem.facts["rm_scores"][index])]
            for one, problem in zip(graded, problems, strict=True)
        ]
        figures = {"maj8": worth[MAJORITY], "rm8": highest, "oracle": worth[ORACLE], "mean_pass1": worth[PASS_AT_1]}
        for name, credits in figures.items():
            published = case["expect"][name]
            yield compared(case["id"], f"{name}, {by}", published=published, ours=sum(credits), digits=1, reason=reason)


def _why_grades_differ(given: Sequence[GradedResponse], ours: Sequence[GradedResponse]) -> str:
    """Return the known reason if it explains all differences. Otherwise return an empty string."""
    pairs = [
        (mine, answer)
        for one, other in zip(given, ours, strict=True)
        for theirs, mine, answer in zip(one.credits, other.credits, one.answers or (), strict=True)
        if theirs != mine
    ]
    return THOUSANDS if pairs == [(1.0, "10000")] else ""


def _given(problems: Sequence[BestOfNProblem]) -> list[GradedResponse]:
    """Return the grades in the file."""
    return [GradedResponse(id=one.id, credits=one.credits or (), answers=one.answers) for one in problems]


def _problems(path: Path) -> list[BestOfNProblem]:
    def refuse(row: object) -> None:
        raise ValueError(str(row))

    return read_problems(path, on_bad=refuse)


async def _graded(problems: Sequence[BestOfNProblem], *, grader: str) -> list[GradedResponse]:
    """Grade the responses with our grader."""
    async with open_grader(Grading(grader)) as opened:
        assert opened is not None
        found = []
        for problem in problems:
            grades = await opened.grade(problem.responses, facts=problem.facts)
            found.append(
                GradedResponse(
                    id=problem.id,
                    credits=tuple(float(bool(grade.correct)) for grade in grades),
                    answers=tuple(grade.answer for grade in grades),
                )
            )
        return found


KINDS: dict[str, Callable[[Case, Path], Iterator[Check]]] = {
    "judgebench": judgebench,
    "code": code_outcomes,
    "rb_sections": rewardbench_sections,
    "rm_agg": rmbench_aggregate,
    "rb2": rewardbench2_average,
    "ifeval": ifeval,
    "gsm": gsm8k,
    "math": competition_math,
}

if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
