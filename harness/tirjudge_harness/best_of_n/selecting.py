"""Chooses the best response to many problems, each judgment through the runner: what was judged once is not judged again,
so that a knockout that was cut off in its third round goes on there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tirjudge.best_of_n import GROUP_SIZE, Selecting, Selection, select
from tirjudge.errors import TirjudgeError
from tirjudge_harness.best_of_n.datasets import BestOfNProblem
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
    method: Selecting
    answers: Sequence[str | None] | None = None
    """Final answers, for votes; None: each text is its own."""


async def choose_all(
    choices: Iterable[ProblemSelection],
    *,
    runner: Runner,
    choosing: Choosing,
    on_done: Callable[[ProblemSelection, Selection | TirjudgeError], None],
) -> None:
    """Choose. What fails stops no other; `on_done` is told of each.

    Raises:
        RunStopped: the run cannot go on.
    """
    await do_all(
        choices,
        do=lambda choice: choose(choice, runner=runner, choosing=choosing),
        most=runner.pace.most,
        on_done=on_done,
    )


async def choose(choice: ProblemSelection, *, runner: Runner, choosing: Choosing) -> Selection:
    """The best of one problem.

    Raises:
        RunStopped: the run cannot go on.
        TirjudgeError: we failed at one of the judgments.
    """
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
