"""How many problems a way of choosing solves, beside those that ask no judge.

first      the first response: pass@1 where it is the greedy one
pass@1     the mean over the responses: what a random choice solves on average
majority   the answer that most responses give (see `tirjudge.best_of_n.majority_index`)
oracle     the best response there is
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from pydantic import BaseModel, ConfigDict

from tirjudge.best_of_n import majority_index
from tirjudge_harness.best_of_n.grading import GradedResponse

FIRST, PASS_AT_1, MAJORITY, ORACLE = "first", "pass@1", "majority", "oracle"


class BestOfN(BaseModel):
    """One way of choosing, over the problems of one file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    policy: str
    """The model that wrote the responses; empty: not told."""
    strategy: str
    """A method of the judge, or one of the baselines."""
    solved: float
    """The sum of what the chosen responses are worth; where each is right or wrong, the problems solved."""
    num_problems: int
    """Over which; those that could not be graded or judged are not among them."""
    interval: tuple[float, float] | None
    """95 % of `solved / num_problems`: Wilson's over problems. None of nothing."""
    helpfulness: float | None = None
    """(solved - first) / (oracle - first): JETTS' normalised helpfulness, where the first response is the greedy one. None:
    first and oracle are the same."""
    num_missing: int = 0
    """Problems that we failed to judge."""
    num_calls: int = 0
    """Judgments that it took, those shared with other problems or strategies included."""
    num_undecided: int = 0
    """Of these, judgments without a verdict."""

    @property
    def share(self) -> float | None:
        """Of the problems; None of nothing."""
        return self.solved / self.num_problems if self.num_problems else None


def baselines(graded: Sequence[GradedResponse]) -> dict[str, list[float]]:
    """What each baseline's choices are worth, one a problem. `majority` is there if the answers are known."""
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
    """The result of choices.

    Args:
        worth: what each choice is worth.
        graded: the same problems.
        dataset, policy, strategy: names.
        counts: `num_missing`, `num_calls`, `num_undecided`.
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
