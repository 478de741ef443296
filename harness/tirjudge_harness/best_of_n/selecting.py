"""Choose the best response to each of many problems.

Every judgment goes through the runner, which saves it and never repeats a saved one. So a knockout that was interrupted
in its third round resumes in its third round.
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
    """Settings of the requests to the judge."""

    seed: int = 0
    """Seed of the pairings and of the judge's requests."""
    group_size: int = GROUP_SIZE
    """Maximum number of responses in one listwise comparison."""
    judging: Mapping[str, Any] = field(default_factory=dict)
    """Other fields of each `JudgeRequest`, such as `tools` and `votes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSelection:
    """One problem, and the method that chooses among its responses."""

    problem: BestOfNProblem
    method: str
    """Name of the strategy."""
    answers: Sequence[str | None] | None = None
    """Final answer of each response, for strategies that vote. None: the whole text of a response is its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selections:
    """The selections of one run."""

    made: dict[tuple[ItemId, str], Selection]
    """Selection by problem id and method. Failed ones are left out."""
    num_failed: int
    """Number of failed selections."""
    num_calls: int
    """Number of judgments made by this run; saved judgments are not counted."""


def check_answers(choices: Sequence[ProblemSelection], *, remedy: str) -> None:
    """Check, before anything is judged, that strategies that vote over answers have them.

    Args:
        choices: the selections to be made.
        remedy: what the user can do, the end of the error message.

    Raises:
        InputError: a strategy needs answers and a problem has none.
    """
    for choice in choices:
        if STRATEGIES.named(choice.method).needs_answers and choice.answers is None:
            raise InputError(f"{choice.method}: the answers of {choice.problem.id} are unknown; {remedy}")


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
    """Choose the best response to each problem. A failed selection does not stop the others.

    Args:
        choices: the selections to be made.
        folder: folder of saved judgments; new judgments are added.
        opened: the judge.
        choosing: settings of the requests to the judge.
        concurrency: maximum number of concurrent judgments.
        progress: progress display to update.
        on_selected: called with each selection that is made.

    Raises:
        StorageError: the folder cannot be read or written.
        RunStopped: the judge does not answer, or the disk is full.
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
