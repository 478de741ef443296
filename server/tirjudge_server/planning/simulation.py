"""A fleet at work: arrivals, servers with their queues, engines that batch, sandbox slots, and engines that die.

    calls -> server: queue, places, processor -> engine -> sandbox -> engine ... -> engine reads the verdict -> caller

`simulate` is deterministic in its seed. What it leaves out: the network beyond a constant, priorities, deadlines, votes
that are cast side by side (each is a judgment here), and the memory of anything but engines.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from tirjudge_server.planning.batching import BatchedEngine, EngineLimits, Job
from tirjudge_server.planning.calendar import Calendar, Station
from tirjudge_server.planning.routing import Loads, Routing
from tirjudge_server.planning.steps import StepCost
from tirjudge_server.planning.summary import SimulationResult, quantile
from tirjudge_server.planning.workload import Draw, JudgmentShape

DETECT_S = 2.0
"""From the death of an engine until servers send it nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What is simulated."""

    cost: StepCost
    limits: EngineLimits
    num_engines: int
    num_servers: int = 1
    places: int = 16
    """Judgments side by side in one server."""
    server_judgment_s: float = 0.0
    """Processor time of a server for a judgment without programs. A server has one processor."""
    server_call_s: float = 0.0
    """Processor time of a server for each request to an engine."""
    server_program_s: float = 0.0
    """Processor time of a server for each program and the turn after it."""
    sandbox_slots: int = 1
    """Of all sandboxes together."""
    sandbox_overhead_s: float = 0.0
    """That a program takes beside its own time."""
    network_s: float = 0.0
    """There and back, of a request to an engine."""
    routing: Routing = Routing.AFFINITY
    engine_mtbf_s: float = float("inf")
    """Mean time to the death of one engine."""
    engine_restart_s: float = 180.0
    """Until it takes requests again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What it is asked. Exactly one of `per_s` and `callers`."""

    per_s: float | None = None
    """Arrivals, at random times."""
    callers: int | None = None
    """Each asks again when it has its answer."""
    draw: Draw
    warm_up_s: float = 0.0
    """At the beginning, not counted."""
    seconds: float = float("inf")
    """Counted, after the warm-up."""
    num_judgments: int | None = None
    """Asked at most; None: until the time is over."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Judgment:
    number: int
    shape: JudgmentShape
    server: _Server
    arrived: float
    turn: int = 0
    num_tokens: int = 0
    """Of the sequence so far."""
    engine: int | None = None
    begun: float = 0.0


@dataclass(slots=True, kw_only=True, eq=False)
class _Server:
    processor: Station
    loads: Loads
    num_free: int
    queue: deque[_Judgment] = field(default_factory=deque)


def simulate(fleet: Fleet, load: Load, *, seed: int = 0) -> SimulationResult:
    """The fleet under the load.

    Raises:
        ValueError: neither or both kinds of arrivals, or a load without an end.
    """
    if (load.per_s is None) == (load.callers is None):
        raise ValueError("load: give per_s or callers, one of them")
    if load.seconds == float("inf") and load.num_judgments is None:
        raise ValueError("load: give seconds or num_judgments, or it never ends")
    return _Simulation(fleet, load, seed=seed).run()


class _Simulation:
    def __init__(self, fleet: Fleet, load: Load, *, seed: int) -> None:
        self._fleet, self._load = fleet, load
        self._arrivals, self._shapes, self._deaths = (Random(f"{seed}/{name}") for name in ("a", "s", "d"))
        self._calendar = calendar = Calendar()
        self._engines = [
            BatchedEngine(calendar, cost=fleet.cost, limits=fleet.limits) for _ in range(fleet.num_engines)
        ]
        self._sandbox = Station(calendar, servers=fleet.sandbox_slots)
        self._servers = [
            _Server(processor=Station(calendar, servers=1), loads=Loads(fleet.num_engines), num_free=fleet.places)
            for _ in range(fleet.num_servers)
        ]
        self._stranded: deque[Callable[[], None]] = deque()
        """Turns that found no engine up."""
        self._num_arrived = self._num_done = self._num_retried = self._num_deaths = 0
        self._num_inside, self._inside_s, self._changed = 0, 0.0, 0.0
        self._latencies, self._queued = array("d"), array("d")

    # The run.

    def run(self) -> SimulationResult:
        load, calendar = self._load, self._calendar
        for _ in range(load.callers or 0):
            self._arrive()
        if load.per_s is not None:
            self._plan_arrival()
        if self._fleet.engine_mtbf_s != float("inf"):
            for number in range(self._fleet.num_engines):
                self._plan_death(number)
        calendar.run(until=load.warm_up_s)
        before = self._counters()
        self._inside_s, self._changed = 0.0, calendar.now
        began = calendar.now
        if load.num_judgments is None or load.seconds != float("inf"):
            calendar.run(until=load.warm_up_s + load.seconds)
        else:
            calendar.run()
        self._count_inside(0)
        return self._result(before, seconds=calendar.now - began)

    def _plan_arrival(self) -> None:
        assert self._load.per_s is not None
        self._calendar.after(self._arrivals.expovariate(self._load.per_s), self._arrive_and_go_on)

    def _arrive_and_go_on(self) -> None:
        if self._arrive():
            self._plan_arrival()

    def _arrive(self) -> bool:
        """One more call; False: there are no more."""
        limit = self._load.num_judgments
        if limit is not None and self._num_arrived >= limit:
            return False
        server = self._servers[self._num_arrived % len(self._servers)]
        self._num_arrived += 1
        shape = self._load.draw(self._shapes)
        judgment = _Judgment(number=self._num_arrived, shape=shape, server=server, arrived=self._calendar.now)
        self._count_inside(1)
        if server.num_free:
            server.num_free -= 1
            self._enter(judgment)
        else:
            server.queue.append(judgment)
        return True

    def _count_inside(self, change: int) -> None:
        now = self._calendar.now
        self._inside_s += self._num_inside * (now - self._changed)
        self._num_inside, self._changed = self._num_inside + change, now

    # One judgment.

    def _enter(self, judgment: _Judgment) -> None:
        judgment.begun = self._calendar.now
        seconds = self._fleet.server_judgment_s + self._fleet.server_call_s
        judgment.server.processor.submit(seconds, partial(self._ask, judgment))

    def _ask(self, judgment: _Judgment) -> None:
        """The turn that is next, at the engine it belongs to."""
        server = judgment.server
        stays = self._fleet.routing is Routing.AFFINITY and judgment.engine is not None
        if not stays or not server.loads.is_up(judgment.engine or 0):
            judgment.engine = server.loads.least()
        if judgment.engine is None:
            self._stranded.append(partial(self._ask, judgment))
            return
        server.loads.add(judgment.engine, 1)
        self._calendar.after(self._fleet.network_s / 2, partial(self._arrive_at_engine, judgment))

    def _arrive_at_engine(self, judgment: _Judgment) -> None:
        engine = self._engines[judgment.engine or 0]
        if not engine.is_up:
            self._retry(judgment)
            return
        turn = judgment.shape[judgment.turn]
        engine.submit(
            Job(
                session=judgment.number,
                prompt_tokens=judgment.num_tokens + turn.new_tokens,
                output_tokens=turn.output_tokens,
                done=partial(self._leave_engine, judgment),
                is_follow_up=judgment.turn > 0,
                owner=judgment,
            )
        )

    def _leave_engine(self, judgment: _Judgment) -> None:
        assert judgment.engine is not None
        judgment.server.loads.add(judgment.engine, -1)
        turn = judgment.shape[judgment.turn]
        judgment.num_tokens += turn.new_tokens + turn.output_tokens
        judgment.turn += 1
        is_last = judgment.turn == len(judgment.shape)
        if is_last:
            self._engines[judgment.engine].drop(judgment.number)
        following = self._finish if is_last else self._after_turn
        self._calendar.after(self._fleet.network_s / 2, partial(following, judgment))

    def _after_turn(self, judgment: _Judgment) -> None:
        program_s = judgment.shape[judgment.turn - 1].program_s
        fleet = self._fleet
        if program_s is None:
            self._next_turn(judgment, fleet.server_call_s)
            return
        following = partial(self._next_turn, judgment, fleet.server_call_s + fleet.server_program_s)
        self._sandbox.submit(program_s + fleet.sandbox_overhead_s, following)

    def _next_turn(self, judgment: _Judgment, server_s: float) -> None:
        judgment.server.processor.submit(server_s, partial(self._ask, judgment))

    def _finish(self, judgment: _Judgment) -> None:
        now, server = self._calendar.now, judgment.server
        self._count_inside(-1)
        self._num_done += 1
        if now > self._load.warm_up_s:
            self._latencies.append(now - judgment.arrived)
            self._queued.append(judgment.begun - judgment.arrived)
        if server.queue:
            self._enter(server.queue.popleft())
        else:
            server.num_free += 1
        if self._load.callers is not None:
            self._arrive()
        if self._num_done == self._load.num_judgments:
            self._calendar.stop()

    # Engines that die.

    def _plan_death(self, number: int) -> None:
        seconds = self._deaths.expovariate(1 / self._fleet.engine_mtbf_s)
        self._calendar.after(seconds, partial(self._die, number))

    def _die(self, number: int) -> None:
        self._num_deaths += 1
        for job in self._engines[number].fail():
            assert isinstance(job.owner, _Judgment)
            self._retry(job.owner)
        self._calendar.after(DETECT_S, partial(self._take_down, number))
        self._calendar.after(max(DETECT_S, self._fleet.engine_restart_s), partial(self._restart, number))

    def _retry(self, judgment: _Judgment) -> None:
        """The same turn again; the engine refused it, or was lost with it. Nobody is asked twice within a moment."""
        assert judgment.engine is not None
        judgment.server.loads.add(judgment.engine, -1)
        judgment.engine = None
        self._num_retried += 1
        self._calendar.after(DETECT_S, partial(self._ask, judgment))

    def _take_down(self, number: int) -> None:
        for server in self._servers:
            server.loads.take_down(number)

    def _restart(self, number: int) -> None:
        self._engines[number].restart()
        for server in self._servers:
            server.loads.bring_up(number)
        self._plan_death(number)
        while self._stranded:
            self._stranded.popleft()()

    # What comes out.

    def _counters(self) -> dict[str, float]:
        engines = self._engines
        return {
            "done": self._num_done,
            "retried": self._num_retried,
            "deaths": self._num_deaths,
            "engine_busy_s": sum(engine.busy_s for engine in engines),
            "sequence_s": sum(engine.sequence_s for engine in engines),
            "decoded": sum(engine.num_decoded for engine in engines),
            "prompt": sum(engine.num_prompt_tokens for engine in engines),
            "prefix": sum(engine.num_prefix_tokens for engine in engines),
            "sandbox_busy_s": self._sandbox.busy_s,
            "sandbox_waited_s": self._sandbox.waited_s,
            "programs": self._sandbox.num_served,
            "processor_busy_s": sum(server.processor.busy_s for server in self._servers),
        }

    def _result(self, before: dict[str, float], *, seconds: float) -> SimulationResult:
        fleet = self._fleet
        spent = {name: value - before[name] for name, value in self._counters().items()}
        latencies, queued = sorted(self._latencies), sorted(self._queued)
        per_engine = [engine.busy_s / max(self._calendar.now, 1e-9) for engine in self._engines]
        return SimulationResult(
            num_judgments=len(latencies),
            seconds=seconds,
            per_s=spent["done"] / seconds,
            mean_s=sum(latencies) / max(1, len(latencies)),
            p50_s=quantile(latencies, 0.5),
            p95_s=quantile(latencies, 0.95),
            p99_s=quantile(latencies, 0.99),
            mean_queue_s=sum(queued) / max(1, len(queued)),
            p95_queue_s=quantile(queued, 0.95),
            mean_inside=self._inside_s / seconds,
            engine_use=spent["engine_busy_s"] / seconds / fleet.num_engines,
            least_engine_use=min(per_engine),
            most_engine_use=max(per_engine),
            mean_batch=spent["sequence_s"] / max(spent["engine_busy_s"], 1e-9),
            decoded_per_s=spent["decoded"] / seconds,
            cached_share=spent["prefix"] / max(1.0, spent["prompt"]),
            sandbox_use=spent["sandbox_busy_s"] / seconds / fleet.sandbox_slots,
            sandbox_wait_s=spent["sandbox_waited_s"] / max(1.0, spent["programs"]),
            server_use=spent["processor_busy_s"] / seconds / fleet.num_servers,
            num_retried=int(spent["retried"]),
            num_deaths=int(spent["deaths"]),
            num_events=self._calendar.num_events,
        )
