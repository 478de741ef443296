"""Queues with a formula, worked out by hand, and the simulated station beside them."""

from functools import partial
from heapq import heappop, heappush
from random import Random

import pytest

from tirjudge_server.planning.calendar import Calendar, Station
from tirjudge_server.planning.queueing import erlang_c, mean_wait_s, servers_for


def nothing() -> None:
    pass


def test_one_server_is_found_busy_as_often_as_it_is() -> None:
    assert erlang_c(offered=0.7, servers=1) == pytest.approx(0.7)


def test_two_servers_at_half_load_make_a_third_wait() -> None:
    # Erlang B: (1/2) / (1 + 1 + 1/2) = 1/5; C = (1/5) / (1 - 1/2 (1 - 1/5)) = 1/3.
    assert erlang_c(offered=1.0, servers=2) == pytest.approx(1 / 3)


def test_a_queue_that_is_asked_too_much_makes_everybody_wait_for_ever() -> None:
    assert erlang_c(offered=3.0, servers=3) == 1.0
    assert mean_wait_s(arrivals_per_s=3.0, service_s=1.0, servers=3) == float("inf")


def test_mean_wait_of_one_server_is_that_of_the_textbook() -> None:
    # rho / (mu - lambda) = 0.8 / (1 - 0.8)
    assert mean_wait_s(arrivals_per_s=0.8, service_s=1.0, servers=1) == pytest.approx(4.0)


@pytest.mark.parametrize("arrivals_per_s", [0.01, 1.0, 100.0, 54_321.0])
def test_the_fewest_servers_are_enough_and_one_fewer_is_not(arrivals_per_s: float) -> None:
    servers, offered = (
        servers_for(arrivals_per_s=arrivals_per_s, service_s=0.2, wait_probability=0.01),
        arrivals_per_s / 5,
    )
    assert erlang_c(offered=offered, servers=servers) <= 0.01
    assert servers == 1 or erlang_c(offered=offered, servers=servers - 1) > 0.01


def test_events_of_one_time_happen_in_the_order_in_which_they_were_entered() -> None:
    calendar, seen = Calendar(), []
    for name in "abc":
        calendar.at(1.0, lambda name=name: seen.append(name))
    calendar.at(0.5, lambda: seen.append("first"))
    calendar.run()
    assert seen == ["first", "a", "b", "c"]
    assert calendar.now == 1.0


def test_a_calendar_stops_where_it_is_told_to() -> None:
    calendar, seen = Calendar(), []
    calendar.at(3.0, lambda: seen.append(3))
    calendar.run(until=2.0)
    assert (calendar.now, seen) == (2.0, [])


def run_station(*, servers: int, load: float, num: int) -> tuple[Station, Calendar, float]:
    """A station under random arrivals, and the mean wait as Kiefer and Wolfowitz calculate it from the same numbers."""
    calendar, random = Calendar(), Random(1)
    station = Station(calendar, servers=servers)
    free_at, time, waited_s = [0.0] * servers, 0.0, 0.0
    for _ in range(num):
        time += random.expovariate(load * servers)
        service_s = random.expovariate(1.0)
        calendar.at(time, partial(station.submit, service_s, nothing))
        begun = max(time, heappop(free_at))
        waited_s += begun - time
        heappush(free_at, begun + service_s)
    calendar.run()
    return station, calendar, waited_s / num


@pytest.mark.parametrize("servers", [1, 2, 8])
def test_who_came_first_is_served_first_by_whoever_is_free_first(servers: int) -> None:
    station, _, expected = run_station(servers=servers, load=0.9, num=3000)
    assert station.mean_wait_s == pytest.approx(expected)


@pytest.mark.parametrize("servers", [1, 2, 4])
def test_a_simulated_station_waits_as_long_as_erlang_says(servers: int) -> None:
    station, calendar, _ = run_station(servers=servers, load=0.6, num=20_000)
    expected = mean_wait_s(arrivals_per_s=0.6 * servers, service_s=1.0, servers=servers)
    assert station.mean_wait_s == pytest.approx(expected, rel=0.15)
    assert station.busy_s / calendar.now / servers == pytest.approx(0.6, rel=0.03)
