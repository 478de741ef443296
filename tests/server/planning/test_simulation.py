"""A fleet at work, beside laws that hold for any queue and formulas that hold for some."""

from dataclasses import replace
from random import Random

import pytest

from tirjudge_server.planning.batching import EngineLimits
from tirjudge_server.planning.queueing import mean_wait_s
from tirjudge_server.planning.routing import Loads, Routing
from tirjudge_server.planning.simulation import Fleet, Load, simulate
from tirjudge_server.planning.steps import StepCost
from tirjudge_server.planning.workload import READ, JudgmentShape, Mix, TurnShape, trace

LIMITS = EngineLimits(max_sequences=64, kv_tokens=200_000, prefill_tokens=8192)
FLEET = Fleet(
    cost=StepCost(base_s=0.007, per_sequence_s=1e-5, per_context_token_s=5e-8, per_prefill_token_s=2.5e-5),
    limits=LIMITS,
    num_engines=4,
    num_servers=2,
    places=200,
    server_judgment_s=0.001,
    server_call_s=0.001,
    sandbox_slots=4,
)
MIX = Mix(prompt_tokens=700, output_tokens=400, num_programs=1.5, observation_tokens=80, program_s=0.05)


def one_program(random: Random) -> JudgmentShape:
    return (TurnShape(new_tokens=1, output_tokens=1, program_s=random.expovariate(1.0)), READ)


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    load = Load(per_s=8.0, draw=MIX.draw, warm_up_s=20.0, seconds=60.0)
    first = simulate(FLEET, load, seed=3)
    assert simulate(FLEET, load, seed=3) == first
    assert simulate(FLEET, load, seed=4) != first


def test_little_s_law_holds() -> None:
    result = simulate(FLEET, Load(per_s=20.0, draw=MIX.draw, warm_up_s=60.0, seconds=200.0))
    assert result.mean_inside == pytest.approx(result.per_s * result.mean_s, rel=0.02)
    assert result.per_s == pytest.approx(20.0, rel=0.05)


@pytest.mark.parametrize("slots", [1, 3])
def test_programs_wait_for_slots_as_erlang_says(slots: int) -> None:
    fleet = Fleet(cost=StepCost(base_s=0.0), limits=LIMITS, num_engines=1, places=10**9, sandbox_slots=slots)
    per_s = 0.75 * slots
    result = simulate(fleet, Load(per_s=per_s, draw=one_program, warm_up_s=500.0, seconds=8_000.0), seed=1)
    expected = mean_wait_s(arrivals_per_s=per_s, service_s=1.0, servers=slots)
    assert result.sandbox_wait_s == pytest.approx(expected, rel=0.25)
    assert result.sandbox_use == pytest.approx(0.75, rel=0.05)


def test_the_queue_of_a_server_with_one_place_is_that_of_one_server() -> None:
    fleet = Fleet(cost=StepCost(base_s=0.0), limits=LIMITS, num_engines=1, places=1, sandbox_slots=1)
    result = simulate(fleet, Load(per_s=0.6, draw=one_program, warm_up_s=500.0, seconds=15_000.0), seed=2)
    assert result.mean_queue_s == pytest.approx(mean_wait_s(arrivals_per_s=0.6, service_s=1.0, servers=1), rel=0.25)
    assert result.sandbox_wait_s == 0.0


def test_callers_who_ask_again_are_answered_at_the_rate_of_their_number() -> None:
    shape = (TurnShape(new_tokens=100, output_tokens=50),)
    fleet = Fleet(cost=StepCost(base_s=0.01), limits=LIMITS, num_engines=1, places=100)
    result = simulate(fleet, Load(callers=5, num_judgments=500, draw=lambda random: shape))
    # 50 steps of 10 ms each, whoever else is there.
    assert result.mean_s == pytest.approx(0.5, rel=0.05)
    assert result.per_s == pytest.approx(5 / result.mean_s, rel=0.05)
    assert result.num_judgments == 500


def test_a_rollout_that_stays_finds_its_prefix_and_one_that_moves_does_not() -> None:
    load = Load(per_s=20.0, draw=MIX.draw, warm_up_s=30.0, seconds=60.0)
    stays = simulate(FLEET, load)
    moves = simulate(replace(FLEET, routing=Routing.LEAST_LOADED), load)
    # One engine of four has it by chance, and the read after a turn may find it where the turn was.
    assert stays.cached_share > 0.6 > 0.45 > moves.cached_share
    assert stays.mean_s < moves.mean_s


def test_all_judgments_are_made_once_although_engines_die() -> None:
    fleet = replace(FLEET, engine_mtbf_s=60.0, engine_restart_s=20.0)
    result = simulate(fleet, Load(callers=40, num_judgments=600, draw=MIX.draw))
    assert result.num_judgments == 600
    assert result.num_deaths >= 3
    assert result.num_retried > 20


def test_nothing_is_lost_while_no_engine_is_up() -> None:
    fleet = replace(FLEET, num_engines=1, engine_mtbf_s=20.0, engine_restart_s=60.0)
    result = simulate(fleet, Load(callers=10, num_judgments=200, draw=MIX.draw), seed=5)
    assert result.num_judgments == 200
    assert result.p99_s > 60.0


def test_more_is_asked_of_a_server_than_its_core_can_do() -> None:
    fleet = replace(FLEET, num_servers=1, server_judgment_s=0.2, places=10_000)
    result = simulate(fleet, Load(per_s=20.0, draw=MIX.draw, warm_up_s=30.0, seconds=100.0))
    assert result.server_use == pytest.approx(1.0, abs=0.02)
    assert result.per_s < 6.0


def test_a_load_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="never ends"):
        simulate(FLEET, Load(per_s=1.0, draw=MIX.draw))
    with pytest.raises(ValueError, match="one of them"):
        simulate(FLEET, Load(draw=MIX.draw, seconds=1.0))


def test_loads_spread_evenly_and_pass_over_who_is_down() -> None:
    loads = Loads(3)
    chosen = []
    for _ in range(6):
        engine = loads.least()
        assert engine is not None
        loads.add(engine, 1)
        chosen.append(engine)
    assert chosen == [0, 1, 2, 0, 1, 2]
    loads.take_down(1)
    loads.add(1, -2)
    assert loads.least() == 0
    loads.bring_up(1)
    assert loads.least() == 1
    for engine in range(3):
        loads.take_down(engine)
    assert loads.least() is None


def test_a_mix_has_the_means_that_it_was_given() -> None:
    random = Random(0)
    shapes = [MIX.draw(random) for _ in range(6_000)]
    assert sum(shape[0].new_tokens for shape in shapes) / len(shapes) == pytest.approx(700, rel=0.03)
    written = sum(turn.output_tokens for shape in shapes for turn in shape[:-1])
    assert written / len(shapes) == pytest.approx(400, rel=0.03)
    assert sum(turn.program_s is not None for shape in shapes for turn in shape) / len(shapes) == pytest.approx(
        1.5, rel=0.02
    )
    assert all(shape[-1] == READ for shape in shapes)


def test_a_trace_gives_what_was_recorded() -> None:
    shapes: list[JudgmentShape] = [(TurnShape(new_tokens=1, output_tokens=number),) for number in (1, 2)]
    draw, random = trace(shapes), Random(0)
    assert {draw(random) for _ in range(50)} == set(shapes)
