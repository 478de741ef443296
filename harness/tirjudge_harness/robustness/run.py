"""Judge the untouched examples, then the attacked ones: each a run in a folder of its own, so that all can be stopped and
go on, and be reported like any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tirjudge.types import JudgeRequest, Judgment, Mode
from tirjudge_harness.bench_run import RunContext, judge_plan, load
from tirjudge_harness.benchmark import Benchmark, HubSource
from tirjudge_harness.items import InputError
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.metric_tree import MeanMetric
from tirjudge_harness.neutral import COLUMNS, neutral_example
from tirjudge_harness.planning import RunSettings, plan_run
from tirjudge_harness.robustness.attacks import ResponseAttack
from tirjudge_harness.robustness.effects import Effect, effect_of, worst_of
from tirjudge_harness.run import BenchmarkRun
from tirjudge_harness.run_store import read_judgments
from tirjudge_harness.runner import key_of
from tirjudge_harness.statistics.intervals import Estimate

UNTOUCHED = "untouched"
"""The folder of the run before any attack."""

LABELLED = Benchmark(
    name="labelled",
    title="Labelled responses",
    citation="",
    sources={"rows": HubSource(id="rows", split="rows")},
    columns=COLUMNS,
    examples=lambda row, part: [neutral_example(row)],
    sheet=(MeanMetric(name="all", holds=lambda mark: True),),
)
"""What a file of rows is that belongs to no benchmark: each has a prompt, responses and a label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attacked:
    """A judge before and after."""

    untouched: BenchmarkRun
    effects: list[Effect]
    """One an attack, the control first."""
    worst: Estimate
    """Of the looks that were right before: those that at least one attack turns wrong."""
    num_missing: int
    """Examples that we failed to judge, over all runs."""


async def attack_judge(
    benchmark: Benchmark,
    *,
    attacks: Sequence[ResponseAttack],
    out: Path,
    settings: RunSettings,
    context: RunContext,
) -> Attacked:
    """Judge everything that the folder does not have yet, and set it side by side.

    Args:
        benchmark: whose examples are attacked.
        attacks: what is done to their wrong responses.
        out: a folder, with one for each run in it.
        settings: how the judge is asked; pairwise in both orders.
        context: who is asked.

    Raises:
        InputError: there are no rows, or a folder belongs to another run.
        RunStopped: the judge is gone, or the disk is full.
    """
    examples, num_bad_rows = load(benchmark, data=settings.data, parts=settings.parts, console=context.console)

    async def judge(attack: ResponseAttack | None, *, context: RunContext) -> BenchmarkRun:
        name = UNTOUCHED if attack is None else attack.name
        changed = examples if attack is None else [attack.applied_to(example) for example in examples]
        its = replace(settings, attack=None if attack is None else name)
        plan = plan_run(benchmark, changed, opened=context.opened, settings=its, num_bad_rows=num_bad_rows)
        title = f"{benchmark.name}, {name}"
        return await judge_plan(plan, benchmark=benchmark, out=out / name, context=context, title=title)

    untouched = await judge(None, context=context)
    known, _ = read_judgments(out / UNTOUCHED)
    remembering = replace(context, opened=_remembering(context.opened, known=known))
    runs = {attack.name: await judge(attack, context=remembering) for attack in attacks}
    before, after = untouched.judged, {name: run.judged for name, run in runs.items()}
    return Attacked(
        untouched=untouched,
        effects=[
            effect_of(attack, before=before, after=after[attack.name], compared=benchmark.compared)
            for attack in attacks
        ],
        worst=worst_of(attacks, before=before, after=after, compared=benchmark.compared),
        num_missing=untouched.num_missing + sum(run.num_missing for run in runs.values()),
    )


def mode_of(benchmark: Benchmark, mode: Mode | None) -> Mode:
    """The mode in which a benchmark is attacked: what is asked for, else the first that can be.

    Raises:
        InputError: that cannot be attacked.
    """
    fitting = [each for each in benchmark.modes if each is not Mode.LISTWISE]
    wanted = mode or next(iter(fitting), Mode.LISTWISE)
    if wanted not in fitting:
        raise InputError(
            f"--mode: {wanted.value} cannot be attacked; {benchmark.name} has {', '.join(fitting) or 'nothing else'}"
        )
    return wanted


def _remembering(opened: OpenJudge, *, known: Mapping[str, Judgment]) -> OpenJudge:
    """The judge, which is not asked again about what was untouched, such as a right response alone."""

    async def judge(request: JudgeRequest) -> Judgment:
        kept = known.get(key_of(request, identity=opened.identity))
        return await opened.judge(request) if kept is None else kept

    return replace(opened, judge=judge)
