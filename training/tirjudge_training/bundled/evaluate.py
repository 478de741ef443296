"""Evaluate on held-out synthetic items. Their phrasings, words, topics, names and numbers do not occur in training.

Items are judged by the serving loop with a real sandbox. Two controls show whether verdicts depend on the output of
programs: items without tools, and items with every program's output replaced by noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, starmap
from random import Random
from typing import Any

from tirjudge.concurrency import map_concurrently
from tirjudge.judge import Judge
from tirjudge.selective import GradedItem, selective_accuracy
from tirjudge.tools.base import Bindings
from tirjudge.tools.functions import Offer
from tirjudge.tools.python import PythonTool, Sandbox
from tirjudge.types import ExecResult, JudgeRequest, Judgment, Mode, Outcome
from tirjudge_training.synthetic.examples import Mixture, draw_examples
from tirjudge_training.validation import call_counts, names_best

CONCURRENCY = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TestSet:
    """One set of held-out items, with the settings for judging it."""

    __test__ = False  # not a pytest class

    name: str
    mode: Mode
    mixture: Mixture
    """Shares of the kinds of items."""
    tools: bool = True
    """Whether the judge may run programs."""
    noise: bool = False
    """Whether the outputs of programs are replaced by noise."""


_VERIFIABLE = Mixture(numeric=0.12, conduct=0.0, toolless=0.0, ties=0.0, list_size=4)
_ONE = replace(_VERIFIABLE, many_instructions=0.0)
_MANY = replace(_VERIFIABLE, numeric=0.0, many_instructions=1.0)
_CONDUCT = replace(_VERIFIABLE, conduct=1.0)

TEST_SETS: tuple[TestSet, ...] = (
    TestSet(name="pairwise, one instruction", mode=Mode.PAIRWISE, mixture=_ONE),
    TestSet(name="pairwise, two or three", mode=Mode.PAIRWISE, mixture=_MANY),
    TestSet(name="pointwise pairs, one instruction", mode=Mode.POINTWISE, mixture=_ONE),
    TestSet(name="pointwise pairs, two or three", mode=Mode.POINTWISE, mixture=_MANY),
    TestSet(name="listwise of four, one instruction", mode=Mode.LISTWISE, mixture=_ONE),
    TestSet(name="listwise of four, two or three", mode=Mode.LISTWISE, mixture=_MANY),
    TestSet(name="pairwise, tools off", mode=Mode.PAIRWISE, mixture=_VERIFIABLE, tools=False),
    TestSet(name="listwise of four, tools off", mode=Mode.LISTWISE, mixture=_VERIFIABLE, tools=False),
    TestSet(name="pairwise, outputs replaced by noise", mode=Mode.PAIRWISE, mixture=_VERIFIABLE, noise=True),
    TestSet(name="listwise of four, outputs replaced by noise", mode=Mode.LISTWISE, mixture=_VERIFIABLE, noise=True),
    TestSet(name="pairwise, nothing to compute", mode=Mode.PAIRWISE, mixture=_CONDUCT),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Results on one set."""

    name: str
    num_items: int
    num_right: int
    """Number of items for which the judge named the best response. Ties and abstentions count as wrong."""
    num_rollouts: int
    num_calls: int
    """Number of programs that ran."""
    num_failed_calls: int
    """Number of programs that failed."""
    num_rollouts_with_calls: int
    """Number of rollouts with at least one program."""
    num_own_verdicts: int
    """Number of rollouts that ended with a verdict that was not forced."""
    selective: Mapping[str, Any] | None = None
    """`SelectiveAccuracy` of the items as JSON data. None: not recorded, in older files."""

    @property
    def accuracy(self) -> float:
        """Share of the items that were judged correctly."""
        return self.num_right / self.num_items

    @property
    def code_error_rate(self) -> float:
        """Share of the programs that failed."""
        return self.num_failed_calls / max(1, self.num_calls)

    @property
    def tool_use_rate(self) -> float:
        """Share of the rollouts with at least one program."""
        return self.num_rollouts_with_calls / max(1, self.num_rollouts)

    @property
    def no_verdict_rate(self) -> float:
        """Share of the rollouts with a forced or missing verdict."""
        return 1 - self.num_own_verdicts / max(1, self.num_rollouts)


class NoiseSandbox:
    """A sandbox that runs the program and replaces its output with random letters and digits, at least 8 characters."""

    def __init__(self, sandbox: Sandbox, *, seed: int) -> None:
        self._sandbox = sandbox
        self._rng = Random(seed)

    async def run(self, code: str, *, bindings: Bindings, offer: Offer | None = None) -> ExecResult:
        result = await self._sandbox.run(code, bindings=bindings, offer=offer)
        noise = "".join(
            self._rng.choice("ABCDEFGHJKMNPQRSTUVWXYZ0123456789 \n") for _ in range(max(8, len(result.stdout)))
        )
        return replace(result, outcome=Outcome.OK, stdout=noise, error=None)


def draw_items(test_set: TestSet, *, num_items: int, seed: int) -> Iterator[tuple[JudgeRequest, int]]:
    """Yield held-out requests, each with the index of its best response.

    The items of pointwise sets are pairs. Their responses are judged separately.
    """
    mode = Mode.PAIRWISE if test_set.mode is Mode.POINTWISE else test_set.mode
    rng = Random(f"held-out/{seed}/{test_set.name}")
    drawn = draw_examples(mode, rng=rng, held_out=True, mixture=test_set.mixture)
    for example in islice((one for one in drawn if one.has_one_best), num_items):
        request = JudgeRequest(
            mode=test_set.mode,
            prompt=example.prompt,
            responses=list(example.responses),
            tools="auto" if test_set.tools else "off",
        )
        yield request, example.label


async def measure(
    judge: Judge, test_set: TestSet, *, num_items: int, seed: int, on_item: Callable[[], None] | None = None
) -> Score:
    """Judge one set.

    Args:
        judge: Judge with a real sandbox.
        test_set: The set to draw and judge.
        num_items: Number of items to draw.
        seed: Seed of the draw. It never coincides with a seed of training.
        on_item: Called after each item.
    """
    if test_set.noise:
        assert judge.sandbox is not None
        judge = replace(judge, tools=[PythonTool(NoiseSandbox(judge.sandbox, seed=seed), judge.functions)])

    async def judged(request: JudgeRequest, best: int) -> tuple[Judgment, bool]:
        judgment = await judge.judge(request)
        if on_item is not None:
            on_item()
        return judgment, names_best(judgment, best)

    items = draw_items(test_set, num_items=num_items, seed=seed)
    answers = await map_concurrently(starmap(judged, items), num_at_once=CONCURRENCY)
    rollouts = [rollout for judgment, _ in answers for rollout in judgment.rollouts]
    return Score(
        name=test_set.name,
        num_items=len(answers),
        num_right=sum(right for _, right in answers),
        selective=selective_accuracy(GradedItem.of(one, credit=float(right)) for one, right in answers).as_json(),
        num_own_verdicts=sum(rollout.stop_reason.is_verdict for rollout in rollouts),
        **call_counts(rollouts),
    )
