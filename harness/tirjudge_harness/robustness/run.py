"""Judge the original examples, then the attacked examples. Each is a separate run in its own folder, which can be resumed and
reported like any other run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tirjudge.types import JudgeRequest, Judgment, Mode
from tirjudge_harness.bench_run import RunContext, RunData, judge_plan
from tirjudge_harness.benchmark import Benchmark
from tirjudge_harness.items import InputError
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.planning import RunSettings
from tirjudge_harness.robustness.attacks import ResponseAttack
from tirjudge_harness.robustness.effects import Effect, effect_of, worst_of
from tirjudge_harness.run import BenchmarkRun
from tirjudge_harness.run_store import read_judgments
from tirjudge_harness.runner import key_of
from tirjudge_harness.statistics.intervals import Estimate

UNTOUCHED = "untouched"
"""Name of the folder of the run without an attack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attacked:
    """The results of a judge without and with attacks."""

    untouched: BenchmarkRun
    """The run without an attack."""
    effects: list[Effect]
    """One effect per attack, the control first."""
    worst: Estimate
    """Share of the presentations that are right without an attack and wrong with at least one attack."""
    num_missing: int
    """Number of examples that failed, over all runs."""


async def attack_judge(
    data: RunData,
    *,
    attacks: Sequence[ResponseAttack],
    out: Path,
    settings: RunSettings,
    context: RunContext,
) -> Attacked:
    """Judge the examples that are not in the folder yet, without and with each attack, and compare the results.

    Args:
        data: the examples. Those without a right response are left out.
        attacks: the attacks.
        out: folder for the runs, with one subfolder per run.
        settings: settings of the runs. The protocol must request both orders in pairwise mode.
        context: the judge.

    Raises:
        InputError: no example has a right and a wrong response, or a folder belongs to another run.
        RunStopped: the judge is unavailable, or the disk is full.
    """
    benchmark = data.benchmark
    examples = [one for one in data.examples if 0 < len(one.outline.correct) < one.outline.num_responses]
    if not examples:
        raise InputError(
            f"{benchmark.name}: attacks change wrong responses, but no example has a right and a wrong one"
        )

    async def judge(attack: ResponseAttack | None, *, context: RunContext) -> BenchmarkRun:
        name = UNTOUCHED if attack is None else attack.name
        changed = examples if attack is None else [attack.applied_to(example) for example in examples]
        its = replace(settings, attack=None if attack is None else name)
        plan = replace(data, examples=changed).plan(opened=context.opened, settings=its)
        title = f"{benchmark.name}, {name}"
        return await judge_plan(plan, benchmark=benchmark, out=out / name, context=context, title=title)

    untouched = await judge(None, context=context)
    known, _ = read_judgments(out / UNTOUCHED)
    cached = replace(context, opened=_with_cache(context.opened, known=known))
    runs = {attack.name: await judge(attack, context=cached) for attack in attacks}
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
    """Return the mode for the attacks. Default: the first mode of the benchmark that supports attacks.

    Raises:
        InputError: the mode does not support attacks.
    """
    fitting = [each for each in benchmark.modes if each is not Mode.LISTWISE]
    wanted = mode or next(iter(fitting), Mode.LISTWISE)
    if wanted not in fitting:
        choice = ", ".join(fitting) or "no other mode"
        raise InputError(f"--mode: attacks do not support {wanted.value!r}; {benchmark.name} supports {choice}")
    return wanted


def _with_cache(opened: OpenJudge, *, known: Mapping[str, Judgment]) -> OpenJudge:
    """Return the judge with a cache of the run without an attack, because right responses do not change."""

    async def judge(request: JudgeRequest) -> Judgment:
        kept = known.get(key_of(request, identity=opened.identity))
        return await opened.judge(request) if kept is None else kept

    return replace(opened, judge=judge)
