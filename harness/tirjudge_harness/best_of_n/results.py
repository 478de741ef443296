"""How many problems each strategy solves, and the baselines without a judge.

first      the first response: greedy accuracy if the first response was decoded greedily
pass@1     the mean over the responses: the expected result of a random choice
majority   the most frequent answer (see `tirjudge.best_of_n.majority_index`)
oracle     the best of the responses: the upper bound
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from pydantic import BaseModel, ConfigDict

from tirjudge.best_of_n import majority_index
from tirjudge_harness.best_of_n.grading import GradedResponse

FIRST, PASS_AT_1, MAJORITY, ORACLE = "first", "pass@1", "majority", "oracle"


class BestOfN(BaseModel):
    """The result of one strategy or baseline over the problems of one file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    """Name of the dataset."""
    policy: str
    """The model that wrote the responses; empty: unknown."""
    strategy: str
    """Name of a strategy, or of a baseline."""
    solved: float
    """Sum of the grades of the chosen responses. With grades of 0 and 1 it is the number of problems solved."""
    num_problems: int
    """Number of problems counted. Problems that could not be graded or judged are left out."""
    interval: tuple[float, float] | None
    """95 % confidence interval of `solved / num_problems`: Wilson's over problems. None: no problems."""
    helpfulness: float | None = None
    """(solved - first) / (oracle - first): the normalized helpfulness of JETTS, whose first response is the greedy one.
    None: first and oracle are equal."""
    num_missing: int = 0
    """Number of problems that could not be judged."""
    num_calls: int = 0
    """Number of judgments used, including judgments shared with other problems or strategies."""
    num_undecided: int = 0
    """Number of these judgments that have no verdict."""

    @property
    def share(self) -> float | None:
        """Share of the problems solved, 0 to 1. None: no problems."""
        return self.solved / self.num_problems if self.num_problems else None


def baselines(graded: Sequence[GradedResponse]) -> dict[str, list[float]]:
    """Return the grade of each baseline's choice, one per problem. `majority` is included if all answers are known."""
    worth = {
        FIRST: [one.credits[0] for one in graded],
        PASS_AT_1: [fmean(one.credits) for one in graded],
    }
    if graded and all(one.answers is not None for one in graded):
        worth[MAJORITY] = [one.credits[majority_index(one.answers or ())] for one in graded]
    return worth | {ORACLE: [max(one.credits) for one in graded]}


def result_of(
    worth: Sequence[float], *, graded: Sequence[GradedResponse], dataset: str, policy: str, strategy: str, **counts: int
) -> BestOfN:
    """Return the result of a strategy or baseline.

    Args:
        worth: grade of each chosen response, 0 to 1.
        graded: the graded problems, in the order of `worth`.
        dataset, policy, strategy: names, as in `BestOfN`.
        counts: `num_missing`, `num_calls` and `num_undecided` of `BestOfN`.
    """
    from tirjudge_harness.statistics.intervals import share_of

    share = share_of(worth, clusters=[str(one.id) for one in graded])
    first, best = sum(one.credits[0] for one in graded), sum(max(one.credits) for one in graded)
    return BestOfN(
        dataset=dataset,
        policy=policy,
        strategy=strategy,
        solved=sum(worth),
        num_problems=len(worth),
        interval=share.interval,
        helpfulness=(sum(worth) - first) / (best - first) if best > first else None,
        **counts,
    )
