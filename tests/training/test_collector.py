"""The collector: the groups that it keeps and the items that it draws, which do not depend on timing."""

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Literal

import pytest
from safetensors.torch import load_file

from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.errors import EngineUnavailable, SandboxUnavailable
from tirjudge.judge import Judge
from tirjudge.model import bundled_checkpoint
from tirjudge.tools.base import Bindings
from tirjudge.tools.python import PythonTool, python_tools
from tirjudge.types import Completion, ExecResult, Mode, Sampling
from tirjudge_sandbox import SandboxPool
from tirjudge_training.collector import Collected, Collector, PseudoLabels
from tirjudge_training.difficulty import DifficultyOrder
from tirjudge_training.items import TrainingItem
from tirjudge_training.policies import EmbeddedPolicy
from tirjudge_training.rewards import RewardRule
from tirjudge_training.synthetic.examples import Mixture
from tirjudge_training.synthetic.items import generate_items

Say = Callable[[str, int], str]
"""(sequence so far, number of the rollout) -> next text."""


class NumberedEngine(ScriptedEngine):
    """A scripted engine whose text depends on the number of the rollout. It optionally has random delays."""

    def __init__(self, say: Say, *, delays: Random | None = None) -> None:
        super().__init__(())
        self._say, self._delays = say, delays
        self.most_at_once = self._now = 0

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            await asyncio.sleep(0 if self._delays is None else self._delays.random() * 0.01)
            number = int(session.rsplit(".", 1)[1])
            self._next_text = lambda sequence: self._say(sequence, number)
            return await super().generate(token_ids, sampling=sampling, session=session)
        finally:
            self._now -= 1


class FixedPolicy:
    """A judge whose weights never change."""

    version = 5

    def __init__(self, engine: ScriptedEngine, sandbox: SandboxPool | None = None) -> None:
        self.judge = Judge(engine=engine, tools=python_tools(sandbox))

    async def load(self, weights: Mapping[str, Any], *, version: int) -> None:
        raise AssertionError("this policy is never trained")


class Listed:
    """Yields all items in the given order, repeatedly."""

    def __init__(self, items: Sequence[TrainingItem]) -> None:
        self.learned: list[tuple[int, float, float]] = []
        self._num = len(items)

    def stream(self, *, step: int, rank: int, num_groups: int) -> Iterator[int]:
        while True:
            yield from range(self._num)

    def learn(self, index: int, *, correct: float, wrong: float) -> None:
        self.learned.append((index, correct, wrong))

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None: ...


def item(kind: str, number: int, *, mode: Mode = Mode.PAIRWISE, best: int | None = 0) -> TrainingItem:
    return TrainingItem(
        id=f"{kind}-{number}",
        mode=mode,
        prompt=f"kind={kind} number={number}",
        responses=("GOOD", "POOR"),
        best=best,
        task=kind,
        source="hand",
        verifiable=True,
        order=(0, 1),
    )


def items_of(kinds: str, *, mode: Mode = Mode.PAIRWISE) -> list[TrainingItem]:
    names = {"E": "easy", "H": "hard", "M": "mixed", "X": "broken"}
    return [item(names[kind], number, mode=mode) for number, kind in enumerate(kinds)]


def say(sequence: str, number: int) -> str:
    """Easy items are always right, hard ones always wrong, mixed ones right in every second rollout; broken ones fail."""
    if "kind=broken" in sequence:
        raise EngineUnavailable("out of order")
    right = "kind=easy" in sequence or ("kind=mixed" in sequence and number % 2 == 0)
    if "<score>" in sequence:
        return f"<score>{8 if right == ('GOOD' in sequence) else 3}</score>"
    return f"<preference>{'A' if right else 'B'}</preference>"


async def collect(
    kinds: str, *, num_groups: int, mode: Mode = Mode.PAIRWISE, delays: Random | None = None, **options: Any
) -> Collected:
    items = items_of(kinds, mode=mode)
    settings: dict[str, Any] = {"group_size": 4, "tools": "off", "order": Listed(items), **options}
    return await Collector(FixedPolicy(NumberedEngine(say, delays=delays)), items, **settings).collect(
        step=0, num_groups=num_groups
    )


def kept(collected: Collected) -> list[str]:
    return [group.trajectories[0].item_id for group in collected.groups]


async def test_each_draw_without_an_advantage_is_replaced_by_one_draw() -> None:
    collected = await collect("EMHMMM", num_groups=2)
    # E and M are drawn first. H replaces E, and the second M replaces H. The last two items are not needed.
    assert [draw.item.id for draw in collected.draws] == ["easy-0", "mixed-1", "hard-2", "mixed-3"]
    assert kept(collected) == ["mixed-1", "mixed-3"]
    stats = collected.stats
    assert (stats["dapo/draws"], stats["dapo/filled"], stats["dapo/dropped"]) == (4, 0, 0)
    assert stats["dapo/kept_frac"] == 0.5
    accuracies = {key: value for key, value in stats.items() if key.startswith("judge/acc")}
    assert accuracies == {"judge/acc/easy/pairwise": 1, "judge/acc/hard/pairwise": 0, "judge/acc/mixed/pairwise": 0.5}
    assert stats["reward/Rc"] == 0.5  # (4 + 2 + 0 + 2) of 16, before filtering
    for group in collected.groups:
        assert [t.reward.correct for t in group.trajectories] == [1, 0, 1, 0]
        assert [t.number for t in group.trajectories] == [0, 1, 2, 3]
        assert {t.weights_version for t in group.trajectories} == {5}


async def test_earliest_uninformative_groups_fill_the_step_at_the_cap() -> None:
    collected = await collect("EHMHEHEH", num_groups=3, max_draws=2)
    assert [draw.item.id for draw in collected.draws] == ["easy-0", "hard-1", "mixed-2", "hard-3", "easy-4", "hard-5"]
    assert kept(collected) == ["mixed-2", "easy-0", "hard-1"]
    assert (collected.stats["dapo/draws"], collected.stats["dapo/filled"]) == (6, 2)


@pytest.mark.parametrize("seed", range(4))
async def test_kept_groups_do_not_depend_on_timing(seed: int) -> None:
    kinds = "".join(Random(9).choice("EHMM") for _ in range(40))
    quick = await collect(kinds, num_groups=8, max_rollouts=7)
    slow = await collect(kinds, num_groups=8, max_rollouts=16, delays=Random(seed))
    assert kept(slow) == kept(quick)
    assert [draw.item.id for draw in slow.draws] == [draw.item.id for draw in quick.draws]
    assert [[t.ids for t in group.trajectories] for group in slow.groups] == [
        [t.ids for t in group.trajectories] for group in quick.groups
    ]


async def test_pointwise_item_has_two_groups_and_a_surplus_group_is_dropped() -> None:
    collected = await collect("MEMM", num_groups=3, mode=Mode.POINTWISE)
    # M and E are drawn for 3 groups. The two groups of E are uninformative, so M is drawn: 4 groups, of which 3 are kept.
    assert [draw.item.id for draw in collected.draws] == ["mixed-0", "easy-1", "mixed-2"]
    assert [(g.trajectories[0].item_id, g.trajectories[0].shown) for g in collected.groups] == [
        ("mixed-0", (0,)),
        ("mixed-0", (1,)),
        ("mixed-2", (0,)),
    ]
    assert [t.label for t in collected.groups[1].trajectories] == ["3", "8", "3", "8"]
    assert [t.reward.correct for t in collected.groups[1].trajectories] == [1, 0, 1, 0]


async def test_cross_credit_keeps_groups_with_different_credits() -> None:
    collected = await collect("MM", num_groups=2, mode=Mode.POINTWISE, rule=RewardRule(pair_credit="cross"))
    # GOOD gets 8 3 8 3 and POOR 3 8 3 8: an 8 beats two of four scores, a 3 beats none.
    assert [[t.reward.correct for t in group.trajectories] for group in collected.groups] == [[0.5, 0, 0.5, 0]] * 2


async def test_group_of_correct_rollouts_is_informative_only_if_rewards_are_compared(pool: SandboxPool) -> None:
    def first_runs_a_program(sequence: str, number: int) -> str:
        if number == 0 and not sequence.endswith("```\n"):
            return "```python\nprint(1)\n```\n```output"
        return "<preference>A</preference>"

    chat = [replace(item("easy", 0), verifiable=False)]  # not verifiable: a program breaks the format, 0.1 instead of 1
    kept_by: list[tuple[Literal["correct", "reward"], int]] = [("correct", 1), ("reward", 0)]
    for keep, filled in kept_by:
        policy = FixedPolicy(NumberedEngine(first_runs_a_program), pool)
        collected = await Collector(policy, chat, group_size=2, keep=keep, max_draws=1).collect(step=0, num_groups=1)
        assert [t.reward.total for t in collected.groups[0].trajectories] == [0.1, 1]
        assert collected.stats["dapo/filled"] == filled
        assert [group.fills for group in collected.groups] == [bool(filled)]


async def test_failed_draw_is_dropped_counted_and_replaced() -> None:
    collected = await collect("MXMMM", num_groups=3)
    assert [draw.item.id for draw in collected.draws] == ["mixed-0", "broken-1", "mixed-2", "mixed-3"]
    assert kept(collected) == ["mixed-0", "mixed-2", "mixed-3"]
    assert collected.stats["dapo/dropped"] == 1
    assert "judge/acc/broken/pairwise" not in collected.stats
    assert isinstance(collected.draws[1].error, EngineUnavailable)


async def test_whole_draw_is_dropped_if_the_sandbox_fails_once() -> None:
    class FailingOnce:
        """A sandbox that fails for the first program."""

        def __init__(self) -> None:
            self.num_runs = 0

        async def run(self, code: str, *, bindings: Bindings, offer: object = None) -> ExecResult:
            self.num_runs += 1
            if self.num_runs == 1:
                raise SandboxUnavailable("gone")
            raise AssertionError("the other rollouts of the draw are cancelled, and other draws run no program")

    def calls_once(sequence: str, number: int) -> str:
        if "number=0" in sequence and number == 0:
            return "```python\nprint(1)\n```\n```output"
        return say(sequence, number)

    items = items_of("MMM")
    policy = FixedPolicy(NumberedEngine(calls_once))
    policy.judge = replace(policy.judge, tools=[PythonTool(FailingOnce())])
    collected = await Collector(policy, items, group_size=4, order=Listed(items)).collect(step=0, num_groups=2)
    assert kept(collected) == ["mixed-1", "mixed-2"]
    assert collected.stats["dapo/dropped"] == 1


async def test_step_fails_if_more_than_half_of_the_draws_fail() -> None:
    with pytest.raises(EngineUnavailable, match="out of order") as raised:
        await collect("XXMX", num_groups=2)
    assert "of the" in raised.value.__notes__[0]


async def test_failed_draw_is_replaced_without_dynamic_sampling() -> None:
    collected = await collect("EXMM", num_groups=2, max_draws=1)  # as without dynamic sampling
    assert [draw.item.id for draw in collected.draws] == ["easy-0", "broken-1", "mixed-2"]
    assert kept(collected) == ["mixed-2", "easy-0"]
    assert (collected.stats["dapo/filled"], collected.stats["dapo/dropped"]) == (1, 1)


async def test_concurrent_rollouts_are_limited() -> None:
    items = items_of("MMMM")
    engine = NumberedEngine(say, delays=Random(0))
    collector = Collector(FixedPolicy(engine), items, group_size=4, tools="off", max_rollouts=5)
    await collector.collect(step=0, num_groups=4)
    assert engine.most_at_once == 5


async def test_repeated_item_has_new_rollouts() -> None:
    collected = await collect("M", num_groups=2)
    numbers = [[t.number for t in group.trajectories] for group in collected.groups]
    assert numbers == [[0, 1, 2, 3], [4, 5, 6, 7]]


async def test_rollouts_are_seeded_by_step_rank_item_and_number() -> None:
    async def seeds(step: int, seed: int, rank: int = 0) -> list[int | None]:
        engine = NumberedEngine(say)
        collector = Collector(FixedPolicy(engine), items_of("M"), group_size=4, tools="off", seed=seed)
        await collector.collect(step=step, num_groups=1, rank=rank)
        assert all(sampling.allowed_token_ids is None for _, sampling, _ in engine.calls)
        assert all(sampling.temperature == 1.0 for _, sampling, _ in engine.calls)
        return [sampling.seed for _, sampling, _ in engine.calls]

    first = await seeds(0, 0)
    assert len(set(first)) == 4
    assert first == await seeds(0, 0)
    assert not set(first) & set(await seeds(1, 0))
    assert not set(first) & set(await seeds(0, 1))
    assert not set(first) & set(await seeds(0, 0, rank=1))  # another rank may draw the same item


async def test_order_learns_the_results_of_each_draw() -> None:
    items = items_of("EMHXM")
    order = Listed(items)
    await Collector(FixedPolicy(NumberedEngine(say)), items, group_size=4, tools="off", order=order).collect(
        step=0, num_groups=2
    )
    assert order.learned == [(0, 4, 0), (1, 2, 2), (2, 0, 4), (4, 2, 2)]


async def test_difficulty_order_keeps_more_groups_after_learning() -> None:
    items = [item(kind, n) for n, kind in enumerate(("mixed", "easy", "hard", "easy", "hard", "easy") * 6)]
    order = DifficultyOrder(items, seed=0, group_size=4)
    collector = Collector(FixedPolicy(NumberedEngine(say)), items, group_size=4, tools="off", order=order)
    kept_fracs = [(await collector.collect(step=step, num_groups=4)).stats["dapo/kept_frac"] for step in range(12)]
    assert sum(kept_fracs[-4:]) / 4 > 0.5  # a sixth of the items are mixed


async def test_rollouts_vote_on_missing_labels() -> None:
    def votes(sequence: str, number: int) -> str:
        return f"<preference>{'B' if number == 3 else 'A'}</preference>"

    items = [item("easy", 0, best=None)]
    policy = FixedPolicy(NumberedEngine(votes))
    with pytest.raises(ValueError, match='"easy-0" has no label'):
        Collector(policy, items)
    plain = PseudoLabels(weight=1, min_verified_mass=0)
    collector = Collector(policy, items, group_size=4, tools="off", pseudo=plain)
    collected = await collector.collect(step=0, num_groups=1)
    assert [t.reward.total for t in collected.groups[0].trajectories] == [1, 1, 1, 0]
    assert not any(key.startswith("judge/acc") for key in collected.stats)

    verifying = Collector(policy, items, group_size=4, tools="off", max_draws=1, pseudo=PseudoLabels())
    refused = await verifying.collect(step=0, num_groups=1)  # no program ran, so no answer is verified
    assert [t.reward.total for t in refused.groups[0].trajectories] == [0, 0, 0, 0]
    assert (refused.stats["ttrl/refused_frac"], refused.stats["dapo/filled"]) == (1, 1)


async def test_known_label_affects_only_the_metrics_of_a_vote() -> None:
    items = items_of("H")
    plain = PseudoLabels(weight=1, min_verified_mass=0)
    collector = Collector(FixedPolicy(NumberedEngine(say)), items, group_size=4, tools="off", max_draws=1, pseudo=plain)
    collected = await collector.collect(step=0, num_groups=1)
    assert [t.reward.total for t in collected.groups[0].trajectories] == [1, 1, 1, 1]  # all agree, but all are wrong
    assert (collected.stats["ttrl/label_acc"], collected.stats["judge/acc/hard/pairwise"]) == (0, 0)


async def test_opposite_order_is_a_second_verifier(pool: SandboxPool) -> None:
    def first_place(sequence: str, number: int) -> str:
        ran = sequence.endswith("```\n")
        return "<preference>A</preference>" if ran else "```python\nprint('hello')\n```\n```output"

    for swap, refused in ((False, 0.0), (True, 1.0)):
        policy = FixedPolicy(NumberedEngine(first_place), pool)
        collector = Collector(policy, [item("easy", 0)], group_size=2, max_draws=1, pseudo=PseudoLabels(swap=swap))
        collected = await collector.collect(step=0, num_groups=1)
        assert len(collected.groups[0].trajectories) == 2
        # A judge that always chooses the first position chooses the other response in the opposite order.
        assert collected.stats["ttrl/refused_frac"] == refused


def test_invalid_settings_are_rejected() -> None:
    policy = FixedPolicy(NumberedEngine(say))
    with pytest.raises(ValueError, match=r"group_size: .* got 1"):
        Collector(policy, items_of("M"), group_size=1)
    with pytest.raises(ValueError, match=r"max_draws: .* got 0\.5"):
        Collector(policy, items_of("M"), max_draws=0.5)
    with pytest.raises(ValueError, match="items: expected at least one, got none"):
        Collector(policy, [])


async def test_tools_without_a_sandbox_are_rejected() -> None:
    with pytest.raises(ValueError, match="the policy has no sandbox"):
        await collect("M", num_groups=1, tools="auto")


@pytest.mark.slow
async def test_embedded_policy_collects_with_a_real_sandbox_and_loads_weights(pool: SandboxPool) -> None:
    items = generate_items(Mode.POINTWISE, count=1, seed=3, mixture=Mixture(conduct=0.0))
    async with EmbeddedPolicy(bundled_checkpoint(), sandbox=pool) as policy:
        collector = Collector(policy, items, group_size=2, seed=1, max_draws=1)
        first = await collector.collect(step=0, num_groups=2)
        every = [t for group in first.groups for t in group.trajectories]
        assert len(every) == 4
        assert all(len(t.ids) == len(t.mask) == len(t.logprobs) for t in every)
        assert all(p == 0.0 for t in every for p, m in zip(t.logprobs, t.mask, strict=True) if m == 0)
        assert first.stats["tool/use_rate"] > 0.5
        assert 0 < first.stats["perf/sandbox_share"] < 1

        weights = load_file(bundled_checkpoint() / "model.safetensors")
        await policy.load(weights, version=1)
        again = await collector.collect(step=0, num_groups=2)
        assert [_ids(group) for group in again.groups] == [_ids(group) for group in first.groups]
        assert {t.weights_version for group in again.groups for t in group.trajectories} == {1}

        halved = {name: tensor / 2 if "o_proj" in name else tensor.clone() for name, tensor in weights.items()}
        await policy.load(halved, version=2)
        for tensor in halved.values():
            tensor.zero_()  # in place, like an optimizer; the policy has a copy
        other = (await collector.collect(step=0, num_groups=2)).groups[0].trajectories[0]
        assert other.logprobs != first.groups[0].trajectories[0].logprobs
        uniform = -math.log(len(weights["model.embed_tokens.weight"]))
        assert other.logprobs[0] > uniform / 2, "with zero weights, all tokens would have the same probability"


def _ids(group: Any) -> list[tuple[int, ...]]:
    return [trajectory.ids for trajectory in group.trajectories]
