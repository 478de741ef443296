"""Recompute the statistics that the authors of LLMBar published beside the raw outputs of their judges.

    python benchmarks/crosscheck_llmbar.py CHECKOUTS --out benchmarks/results/crosscheck_llmbar.json

CHECKOUTS has a clone of princeton-nlp/LLMBar, as in `authors_prompts.py`. No judge and no code of the authors runs. For each
of their runs, the texts that the judge wrote are read by forms of verdicts, and counted by the scoring rules of the benchmark
`llmbar`. The result has nine figures of each run in two lists, the published ones and ours, in the order of `FIGURES`.

Ratings become two decisions as in the authors' program: of equal ratings, the response that would be shown second wins, and
without a rating, the one that would be shown first. `correct_average` is also computed from the ratings by the pointwise
rule, as a tenth figure. In the authors' kappas, the choice of the second response and a missing verdict are the same
category, and the label of the second response is another one. Kappas are computed from these categories.

The exit status is 1 if a figure differs without a known reason.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from authors_code import unpacked
from crosscheck_figures import Check, Verdict, compared
from reporting import report_head

from tirjudge.formats.verdict_forms import LabelForm, NumberForm, Scale
from tirjudge.right import Decision, ScoringRule
from tirjudge.types import Mode
from tirjudge_harness.benchmarks.llmbar import BENCHMARK, REVISION, agreement_of_orders
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.evaluation import marks_of
from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.protocols import OFFICIAL
from tirjudge_harness.statistics.agreement import agreement_of

REPOSITORY = "princeton-nlp/LLMBar"

LABELS = {"a": "A", "b": "B"}
FORMS = {
    r"(?:^|\n) ?Output \(a\)": LabelForm(
        form="label", before=("\nOutput (", "\n Output ("), after=(")",), labels=LABELS, in_order=True
    ),
    r"Output \(a\) is better.": LabelForm(
        form="label", before=("Output (",), after=(") is better",), labels=LABELS, in_order=True
    ),
}
"""Pattern of the authors for the first response -> our form. In both, the first response wins if a text names both."""
RATING = NumberForm(form="number", scale=Scale(low=0, high=9))

ORDERS = {"swap = False": (0, 1), "swap = True": (1, 0)}
"""Name of an order in the authors' files -> the responses in the order shown."""

CUT_SHORT = (
    'the pattern of the authors needs a character after "is better", and a text ends there; our form reads its verdict'
)

FIGURES = (
    "correct_False", "correct_True", "correct_average", "correct_both", "equal",
    "kappa_False", "kappa_True", "kappa_average", "kappa_agreement",
)  # fmt: skip
"""Figures of a run, as the authors name them. The first five are percentages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorsRun:
    """A run of the authors: one judge on one set of pairs."""

    name: str
    """Set and judge."""
    published: Mapping[str, Any]
    """Statistics of the authors."""
    pairs: tuple[JudgedExample, ...]
    """Pairs with one decision for each order."""
    rated: tuple[JudgedExample, ...]
    """The same pairs with one score for each response. Empty: the judge compares."""
    unlike: tuple[str, ...]
    """Texts from which the authors read another verdict, or none."""


def main(
    checkouts: Annotated[Path, typer.Argument(help="Folder with a clone of princeton-nlp/LLMBar.")],
    out: Annotated[Path | None, typer.Option(help="File for the result. Default: print only.")] = None,
) -> None:
    """Recompute the published statistics of LLMBar. Exit with status 1 if a figure differs for no known reason."""
    lines, verdicts = [], Counter[str]()
    with unpacked(checkouts, REPOSITORY, REVISION, "Dataset", "LLMEvaluator/evaluators/config") as root:
        for path in sorted(root.glob("Dataset/**/statistics.json")):
            run = read_run(path, root=root)
            checks = checked(run)
            verdicts.update(one.verdict for one in checks)
            lines.append(json.dumps(_line(run, checks)))
    counts = {verdict: verdicts[verdict] for verdict in get_args(Verdict)}
    head = report_head() | {"repository": f"{REPOSITORY}@{REVISION}", "num_runs": len(lines)}
    head |= {"num_checks": verdicts.total(), "counts": counts, "figures": FIGURES}
    print(json.dumps(head, indent=1))
    if out is not None:
        runs = ",\n".join(lines)
        out.write_text(f'{json.dumps(head)[:-1]}, "runs": [\n{runs}\n]}}\n', encoding="utf-8")
    if counts["differs"]:
        raise typer.Exit(1)


def _line(run: AuthorsRun, checks: Sequence[Check]) -> dict[str, Any]:
    """Return the figures of a run for the result file, without any text of the rows."""
    reasons = {one.figure: one.why or "no known reason" for one in checks if one.verdict != "same"}
    return {
        "run": run.name,
        "num_pairs": len(run.pairs),
        "published": [one.published for one in checks],
        "ours": [one.ours for one in checks],
        **({"not_same": reasons} if reasons else {}),
    }


def read_run(path: Path, *, root: Path) -> AuthorsRun:
    """Read the raw outputs and the statistics of a run, and the verdicts in these outputs.

    Args:
        path: file of the statistics.
        root: the unpacked repository.

    Raises:
        ValueError: the judge has a pattern that no form stands for.
    """
    data, judge = path.parent.relative_to(root / "Dataset").as_posix().split("/evaluators/")
    stages = json.loads((root / f"LLMEvaluator/evaluators/config/{judge}.json").read_text(encoding="utf-8"))
    rows = json.loads((path.parent / "result.json").read_text(encoding="utf-8"))
    pairs, rated, unlike = [], [], []
    for number, row in enumerate(rows):
        given = row["results"][-1]
        outline = ExampleMetadata(
            id=str(number), subset=data, num_responses=2, correct=(row["label"] - 1,), cluster=str(number)
        )
        if "score_1" in given:
            scores = [_rating(given[f"score_{place}"][0]) for place in (1, 2)]
            decisions = _decisions_of(scores)
            alone = tuple(Decision(shown=(index,), score=score) for index, score in enumerate(scores))
            rated.append(JudgedExample(outline=outline, mode=Mode.POINTWISE, decisions=alone))
        else:
            # A judge that is asked a second time only if its two verdicts differ has as many results as it was asked.
            stage = stages[len(row["results"]) - 1 if "Swap" in judge else -1]
            decisions = _decisions_in(given, form=_form(stage["parsing"]["1"]))
        pairs.append(JudgedExample(outline=outline, mode=Mode.PAIRWISE, decisions=decisions))
        for order, decision in zip(ORDERS, decisions, strict=True):
            if _winner(decision) != given[order]["winner"]:
                unlike.append(given[order].get("completion", [""])[0])
    published = json.loads(path.read_text(encoding="utf-8"))
    name = f"{data}, {judge}"
    return AuthorsRun(name=name, published=published, pairs=tuple(pairs), rated=tuple(rated), unlike=tuple(unlike))


def _form(pattern: str) -> LabelForm:
    if pattern not in FORMS:
        raise ValueError(f"pattern: {pattern!r} given; add a form for it to FORMS")
    return FORMS[pattern]


def _decisions_in(given: Mapping[str, Any], *, form: LabelForm) -> tuple[Decision, ...]:
    """Return the decision in the text of each order."""
    decisions = []
    for order, shown in ORDERS.items():
        verdict = form.read(given[order]["completion"][0], num_responses=2)
        best = None if verdict is None else shown["AB".index(verdict.label or "")]
        decisions.append(Decision(shown=shown, best=best))
    return tuple(decisions)


def _rating(text: str) -> float | None:
    """Return the rating in a text, on the scale of the authors."""
    found = RATING.read(text, num_responses=1)
    return None if found is None else float(found.written)


def _decisions_of(scores: Sequence[float | None]) -> tuple[Decision, ...]:
    """Return the decisions that the authors derive from two ratings."""
    known = [score for score in scores if score is not None]
    if len(known) < 2:
        return tuple(Decision(shown=shown, best=shown[0]) for shown in ORDERS.values())
    return tuple(
        Decision(shown=shown, best=shown[1] if known[0] == known[1] else known.index(max(known)))
        for shown in ORDERS.values()
    )


def _winner(decision: Decision) -> str | None:
    """Return the chosen response as the authors name it."""
    return None if decision.best is None else str(decision.best + 1)


def checked(run: AuthorsRun) -> list[Check]:
    """Compare the figures of a run. A difference has a reason if each verdict that the authors read otherwise has one."""
    has_reason = run.unlike and all(text.endswith("is better") for text in run.unlike)
    reason = CUT_SHORT if has_reason else ""
    ours = figures_of(run.pairs)
    checks = [
        compared(run.name, name, published=_number(run.published[name]), ours=ours[name], reason=reason)
        for name in FIGURES
    ]
    if run.rated:
        average = 100 * _mean_credit(run.rated, BENCHMARK.rule(OFFICIAL, mode=Mode.POINTWISE)[1])
        published = _number(run.published["correct_average"])
        checks.append(compared(run.name, "correct_average of the ratings", published=published, ours=average))
    return checks


def figures_of(pairs: Sequence[JudgedExample]) -> dict[str, float]:
    """Return the figures of a run from the decisions in two orders."""
    by_order = [[one.decisions[place] for one in pairs] for place in range(len(ORDERS))]
    first, second = (
        [
            JudgedExample(outline=one.outline, mode=one.mode, decisions=(each,))
            for one, each in zip(pairs, of, strict=True)
        ]
        for of in by_order
    )
    _, official = BENCHMARK.rule(OFFICIAL, mode=Mode.PAIRWISE)
    shares = {
        "correct_False": _mean_credit(first, ScoringRule(tie=0.0)),
        "correct_True": _mean_credit(second, ScoringRule(tie=0.0)),
        "correct_average": _mean_credit(pairs, official),
        "correct_both": _mean_credit(pairs, ScoringRule(orders="all", tie=0.0)),
        "equal": agreement_of_orders(pairs) or 0.0,
    }
    categories = [["1" if one.best == 0 else "other" for one in of] for of in by_order]
    labels = ["1" if 0 in one.outline.correct else "2" for one in pairs]
    kappas = [_kappa(of, labels) for of in categories]
    named = zip(FIGURES[5:], (*kappas, sum(kappas) / 2, _kappa(*categories)), strict=True)
    return {name: 100 * share for name, share in shares.items()} | dict(named)


def _mean_credit(judged: Sequence[JudgedExample], counting: ScoringRule) -> float:
    marks = [mark for one in judged for mark in marks_of(one, compared=[(0, 1)], counting=counting)]
    return sum(mark.credit for mark in marks) / len(judged)


def _kappa(first: Sequence[str], second: Sequence[str]) -> float:
    kappa = agreement_of(first, second, num_resamples=0).kappa
    return math.nan if kappa is None else kappa


def _number(printed: str | float) -> float:
    """Return a figure such as `46 / 54 = 85.2%` as a number."""
    return float(printed.rpartition("=")[2].strip().removesuffix("%")) if isinstance(printed, str) else printed


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
