"""The Erlang C formula, compared with manual calculations."""

import pytest

from tirjudge_server.planning.queueing import erlang_c, servers_for


def test_one_server_waits_with_probability_of_its_load() -> None:
    assert erlang_c(offered=0.7, servers=1) == pytest.approx(0.7)


def test_two_servers_at_half_load_wait_with_probability_one_third() -> None:
    # Erlang B: (1/2) / (1 + 1 + 1/2) = 1/5; C = (1/5) / (1 - 1/2 (1 - 1/5)) = 1/3.
    assert erlang_c(offered=1.0, servers=2) == pytest.approx(1 / 3)


def test_overloaded_queue_always_waits() -> None:
    assert erlang_c(offered=3.0, servers=3) == 1.0


@pytest.mark.parametrize("arrivals_per_s", [0.01, 1.0, 100.0, 54_321.0])
def test_servers_for_returns_the_minimum(arrivals_per_s: float) -> None:
    servers, offered = (
        servers_for(arrivals_per_s=arrivals_per_s, service_s=0.2, wait_probability=0.01),
        arrivals_per_s / 5,
    )
    assert erlang_c(offered=offered, servers=servers) <= 0.01
    assert servers == 1 or erlang_c(offered=offered, servers=servers - 1) > 0.01
