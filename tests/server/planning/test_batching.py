"""One engine with continuous batching; every time in here can be worked out by hand."""

from collections.abc import Callable

import pytest

from tirjudge_server.planning.batching import BatchedEngine, EngineLimits, Job
from tirjudge_server.planning.calendar import Calendar
from tirjudge_server.planning.steps import StepCost

COST = StepCost(base_s=1.0, per_sequence_s=0.1, per_context_token_s=0.001, per_prefill_token_s=0.01)
FLAT = StepCost(base_s=1.0)
ROOMY = EngineLimits(max_sequences=8, kv_tokens=10_000, prefill_tokens=1000, block_tokens=1)


class Bench:
    """One engine, and when each of its turns ended."""

    def __init__(self, *, cost: StepCost = FLAT, limits: EngineLimits = ROOMY) -> None:
        self.calendar = Calendar()
        self.engine = BatchedEngine(self.calendar, cost=cost, limits=limits)
        self.ended: dict[str, float] = {}

    def ask(self, name: str, *, at: float, prompt: int, output: int, session: int = 0, follow_up: bool = False) -> None:
        def note(name: str = name) -> None:
            self.ended[name] = self.calendar.now

        job = Job(session=session, prompt_tokens=prompt, output_tokens=output, done=note, is_follow_up=follow_up)
        self.calendar.at(at, lambda: self.engine.submit(job))

    def run(self) -> dict[str, float]:
        self.calendar.run()
        return {name: round(time, 6) for name, time in self.ended.items()}


def test_one_sequence_takes_a_prefill_and_a_step_for_each_further_token() -> None:
    bench = Bench(cost=COST)
    bench.ask("a", at=0.0, prompt=100, output=3)
    # prefill: 1 + 100 * 0.01 = 2; then two steps with 101 and 102 tokens: 1.1 + 0.101, 1.1 + 0.102
    assert bench.run() == {"a": pytest.approx(2.0 + 1.201 + 1.202)}


def test_two_sequences_share_their_steps() -> None:
    bench = Bench()
    bench.ask("a", at=0.0, prompt=10, output=5, session=1)
    bench.ask("b", at=0.0, prompt=10, output=5, session=2)
    # The first is prefilled alone, since it was there a moment earlier; the second joins in the next step.
    assert bench.run() == {"a": 5.0, "b": 6.0}
    assert bench.engine.busy_s == 6.0


def test_an_arrival_joins_at_the_end_of_the_step_it_falls_into() -> None:
    bench = Bench()
    bench.ask("a", at=0.0, prompt=10, output=10, session=1)
    bench.ask("b", at=3.4, prompt=10, output=2, session=2)
    assert bench.run() == {"a": 10.0, "b": 6.0}


def test_a_prompt_holds_up_those_who_decode() -> None:
    bench = Bench(cost=StepCost(base_s=1.0, per_prefill_token_s=0.01))
    bench.ask("a", at=0.0, prompt=1, output=5, session=1)
    bench.ask("b", at=1.5, prompt=300, output=1, session=2)
    # a: 1.01, then a step to 2.01, then one that computes 300 tokens of b to 6.01, then two more.
    assert bench.run() == {"b": 6.01, "a": 8.01}


def test_a_long_prompt_is_computed_in_several_steps() -> None:
    bench = Bench(limits=EngineLimits(max_sequences=8, kv_tokens=10_000, prefill_tokens=100, block_tokens=1))
    bench.ask("a", at=0.0, prompt=250, output=1)
    assert bench.run() == {"a": 3.0}


def test_a_turn_that_comes_back_finds_its_prefix() -> None:
    bench = Bench(cost=StepCost(base_s=0.0, per_prefill_token_s=0.01))
    bench.ask("first", at=0.0, prompt=100, output=10, session=1)
    bench.ask("second", at=5.0, prompt=130, output=1, session=1, follow_up=True)
    # 110 of the 130 are there.
    assert bench.run()["second"] == pytest.approx(5.0 + 20 * 0.01)
    assert bench.engine.num_prefix_tokens == 110


def test_a_prefix_is_found_in_whole_blocks_and_the_last_token_is_always_computed() -> None:
    limits = EngineLimits(max_sequences=8, kv_tokens=10_000, prefill_tokens=1000, block_tokens=16)
    bench = Bench(limits=limits)
    bench.ask("first", at=0.0, prompt=100, output=10, session=1)
    bench.ask("second", at=50.0, prompt=130, output=1, session=1)
    bench.ask("again", at=100.0, prompt=96, output=1, session=1)
    bench.run()
    assert bench.engine.num_prefix_tokens == 96 + 95


def test_what_every_prompt_begins_with_is_always_there() -> None:
    limits = EngineLimits(
        max_sequences=8, kv_tokens=10_000, prefill_tokens=1000, block_tokens=1, shared_prefix_tokens=60
    )
    bench = Bench(cost=StepCost(base_s=0.0, per_prefill_token_s=0.01), limits=limits)
    bench.ask("a", at=0.0, prompt=100, output=1)
    assert bench.run() == {"a": pytest.approx(0.4)}


def small_cache(kv_tokens: int) -> EngineLimits:
    return EngineLimits(max_sequences=8, kv_tokens=kv_tokens, prefill_tokens=1000, block_tokens=1)


def test_whoever_does_not_fit_waits_until_somebody_has_left() -> None:
    bench = Bench(limits=small_cache(100))
    bench.ask("a", at=0.0, prompt=50, output=10, session=1)
    bench.ask("b", at=0.5, prompt=50, output=10, session=2)
    assert bench.run() == {"a": 10.0, "b": 20.0}


def test_the_prefix_that_was_longest_unused_is_dropped_first() -> None:
    bench = Bench(limits=small_cache(250))
    for number, at in enumerate((0.0, 10.0, 20.0)):
        bench.ask(f"{number}", at=at, prompt=99, output=1, session=number)
    bench.ask("old", at=30.0, prompt=101, output=1, session=0)
    bench.ask("young", at=40.0, prompt=101, output=1, session=2)
    bench.run()
    assert bench.engine.num_prefix_tokens == 100  # that of the young one alone


def test_a_full_batch_makes_others_wait_and_follow_ups_go_first() -> None:
    bench = Bench(limits=EngineLimits(max_sequences=1, kv_tokens=10_000, prefill_tokens=1000, block_tokens=1))
    bench.ask("a", at=0.0, prompt=5, output=3, session=1)
    bench.ask("new", at=0.5, prompt=5, output=3, session=2)
    bench.ask("follow-up", at=1.0, prompt=5, output=3, session=3, follow_up=True)
    assert bench.run() == {"a": 3.0, "follow-up": 6.0, "new": 9.0}


def test_what_can_never_fit_is_refused() -> None:
    bench = Bench(limits=small_cache(100))
    bench.ask("a", at=0.0, prompt=100, output=1)
    with pytest.raises(ValueError, match="100 \\+ 1 tokens never fits into a cache of 100"):
        bench.run()


def test_an_engine_that_dies_loses_all_turns_and_its_cache() -> None:
    bench = Bench()
    bench.ask("kept", at=0.0, prompt=50, output=1, session=1)
    bench.ask("running", at=2.0, prompt=50, output=100, session=2)
    bench.calendar.run(until=5.0)
    lost = bench.engine.fail()
    assert [job.session for job in lost] == [2]
    assert bench.engine.num_present == 0
    bench.engine.restart()
    bench.ask("again", at=6.0, prompt=51, output=1, session=1)
    assert bench.run() == {"kept": 1.0, "again": 7.0}
    assert bench.engine.num_prefix_tokens == 0


def step_by_step(arrivals: list[tuple[float, int, int]], *, cost: StepCost) -> list[float]:
    """The same engine, one step at a time: when each of (arrival, prompt, output) ends. Room for all, no cache."""
    now, ended = 0.0, [0.0] * len(arrivals)
    waiting, running = list(range(len(arrivals))), dict[int, int]()
    while waiting or running:
        if not running and arrivals[waiting[0]][0] > now:
            now = arrivals[waiting[0]][0]
        joining = [number for number in waiting if arrivals[number][0] <= now]
        waiting = waiting[len(joining) :]
        context = sum(arrivals[number][1] + written for number, written in running.items())
        seconds = cost.decode_s(num_sequences=len(running), context_tokens=context)
        now += seconds + sum(cost.prefill_s(num_tokens=arrivals[number][1], start=0) for number in joining)
        for number in [*running, *joining]:
            running[number] = running.get(number, 0) + 1
            if running[number] == arrivals[number][2]:
                del running[number]
                ended[number] = now
    return ended


def test_steps_taken_together_end_when_single_ones_would() -> None:
    arrivals = [(0.0, 40, 30), (7.3, 60, 12), (7.35, 10, 1), (21.0, 200, 25), (90.0, 30, 9)]
    bench = Bench(cost=COST)
    for number, (at, prompt, output) in enumerate(arrivals):
        bench.ask(f"{number}", at=at, prompt=prompt, output=output, session=number)
    ended = bench.run()
    assert [ended[f"{number}"] for number in range(len(arrivals))] == pytest.approx(step_by_step(arrivals, cost=COST))


def test_a_callback_may_ask_for_the_next_turn_at_once() -> None:
    calendar = Calendar()
    engine = BatchedEngine(calendar, cost=FLAT, limits=ROOMY)
    ended: list[float] = []

    def ask(number: int) -> Callable[[], None]:
        def done() -> None:
            ended.append(calendar.now)
            if number < 3:
                engine.submit(Job(session=1, prompt_tokens=10, output_tokens=1, done=ask(number + 1)))

        return done

    engine.submit(Job(session=1, prompt_tokens=10, output_tokens=1, done=ask(1)))
    calendar.run()
    assert ended == [1.0, 2.0, 3.0]
