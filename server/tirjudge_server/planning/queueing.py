"""The number of servers that an M/M/c queue needs, from the Erlang C formula."""

from __future__ import annotations


def erlang_c(*, offered: float, servers: int) -> float:
    """Probability that an arrival of an M/M/c queue waits.

    Args:
        offered: offered load in erlangs: arrivals per second times mean service time in seconds.
        servers: number of servers.

    Returns:
        1.0 if the queue is not stable.
    """
    if offered >= servers:
        return 1.0
    blocking = 1.0
    for number in range(1, servers + 1):  # Erlang B by recursion, which cannot overflow
        blocking = offered * blocking / (number + offered * blocking)
    return blocking / (1 - offered / servers * (1 - blocking))


def servers_for(*, arrivals_per_s: float, service_s: float, wait_probability: float) -> int:
    """Minimum number of servers at which at most a share of `wait_probability` of the arrivals waits.

    Args:
        arrivals_per_s: arrivals per second.
        service_s: mean service time in seconds.
        wait_probability: maximum share of arrivals that wait.
    """
    offered = arrivals_per_s * service_s

    def is_enough(servers: int) -> bool:
        return erlang_c(offered=offered, servers=servers) <= wait_probability

    too_few = int(offered)
    enough = too_few + 1
    while not is_enough(enough):
        too_few, enough = enough, 2 * enough
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if is_enough(middle) else (middle, enough)
    return enough
