"""Chooses the best response to many problems, each judgment through the runner: what was judged once is not judged again,
so that a knockout that was cut off in its third round goes on there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tirjudge.best_of_n import GROUP_SIZE, Selection, select
from tirjudge.errors import TirjudgeError
from tirjudge.strategies import STRATEGIES
from tirjudge_harness.best_of_n.datasets import BestOfNProblem
from tirjudge_harness.items import InputError, ItemId
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.pacing import Pace
from tirjudge_harness.progress import RunProgress
from tirjudge_harness.run_store import JudgmentStore
from tirjudge_harness.runner import Runner, do_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Choosing:
    """How the best is sought."""

    seed: int = 0
    group_size: int = GROUP_SIZE
    """Of listwise comparisons."""
    judging: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the `JudgeRequest`s, such as `tools` and `votes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSelection:
    """One problem and one method."""

    problem: BestOfNProblem
    method: str
    answers: Sequence[str | None] | None = None
    """Final answers, for votes; None: each text is its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selections:
    """What came of many."""

    made: dict[tuple[ItemId, str], Selection]
    """By problem and method; those that failed are left out."""
    num_failed: int
    num_calls: int
    """Judgments that the judge itself was asked for."""


def check_answers(choices: Sequence[ProblemSelection], *, way_out: str) -> None:
    """Before anything is judged.

    Raises:
        InputError: a vote over answers is asked for, and there are none.
    """
    for choice in choices:
        if STRATEGIES.named(choice.method).needs_answers and choice.answers is None:
            raise InputError(f"{choice.method}: the answers of {choice.problem.id} are not known; {way_out}")


async def choose_all(
    choices: Sequence[ProblemSelection],
    *,
    folder: Path,
    opened: OpenJudge,
    choosing: Choosing,
    concurrency: int,
    progress: RunProgress,
    on_selected: Callable[[ProblemSelection, Selection], None] = lambda choice, selection: None,
) -> Selections:
    """Choose. What fails stops no other.

    Args:
        choices: what is sought.
        folder: has what was judged before, and gets what is judged now.
        opened: the judge.
        choosing: how it is asked.
        concurrency: the most judgments under way at a time.
        progress: is shown.
        on_selected: told of each.

    Raises:
        StorageError: the folder cannot be used.
        RunStopped: the judge is gone, or the disk is full.
    """
    made: dict[tuple[ItemId, str], Selection] = {}
    async with JudgmentStore(folder) as store, progress:
        runner = Runner(opened.judge, identity=opened.identity, store=store, pace=Pace(most=concurrency))
        kept = {judgment.id for judgment in store.judgments.values()}

        async def choose(choice: ProblemSelection) -> Selection:
            return await select(
                choice.problem.prompt,
                choice.problem.responses,
                judge=runner.judge,
                method=choice.method,
                answers=choice.answers,
                seed=choosing.seed,
                group_size=choosing.group_size,
                **choosing.judging,
            )

        def show(choice: ProblemSelection, done: Selection | TirjudgeError) -> None:
            if isinstance(done, TirjudgeError):
                name = f"{choice.problem.id}, {choice.method}"
                progress.failed(name, f"{type(done).__name__}: {done}")
                return
            made[choice.problem.id, choice.method] = done
            on_selected(choice, done)
            is_kept = all(judgment.id in kept for judgment in done.judgments)
            (progress.kept if is_kept else progress.answered)(*done.judgments)

        await do_all(choices, do=choose, most=concurrency, on_done=show)
    return Selections(made=made, num_failed=progress.num_failed, num_calls=runner.num_asked)
