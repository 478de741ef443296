"""Metrics of a server's current state, which are read at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tirjudge_sandbox.pool import PoolStats
from tirjudge_server.failure import Fallbacks
from tirjudge_server.service import JudgeService

Samples = Mapping[tuple[str, ...], float]
"""Values of the labels -> value of the metric."""


class Gauges(Collector):
    """Collects the current state of a server. The arguments are those of `ServerMetrics`."""

    def __init__(
        self, service: JudgeService, *, pool: Callable[[], PoolStats] | None, fallbacks: Fallbacks | None
    ) -> None:
        self._service = service
        self._pool = pool
        self._fallbacks = fallbacks

    def collect(self) -> Iterable[Metric]:
        service = self._service
        admission, readiness = service.admission, service.readiness
        is_ready = readiness.problem is None and not service.draining.has_begun
        identity = (version("tirjudge"), service.judge.profile.name, service.fingerprint or "", service.isolation or "")
        labels = ("version", "model", "fingerprint", "isolation")
        yield _gauge("info", "Always 1; its labels describe the server.", {identity: 1}, labels=labels)
        yield _gauge("inflight", "Judgments in flight.", {(): admission.num_running})
        yield _gauge("queue_depth", "Judgments in the queue.", {(): admission.num_waiting})
        yield _gauge("ready", "1 while the server is ready to judge, otherwise 0.", {(): is_ready})
        yield _gauge(
            "circuit_open",
            "1 while the engine or sandbox is known to be down and requests fail immediately, otherwise 0.",
            {(circuit.name,): float(circuit.is_open) for circuit in (readiness.engine, readiness.sandbox)},
            labels=("part",),
        )
        yield _counter("joined", "Requests coalesced with a judgment in flight.", {(): service.in_flight.num_joined})
        yield _counter("cache_hits", "Requests answered from the records.", {(): service.num_recalled})
        yield _gauge(
            "sandbox_pool",
            "Sandbox slots by state, and programs that wait for a slot.",
            {} if self._pool is None else _slots(self._pool()),
            labels=("state",),
        )
        for part, worker_name in (("engine", "an engine worker"), ("sandbox", "a sandbox worker")):
            workers = service.workers().get(part, ())
            up: Samples = {(worker.url,): worker.problem is None for worker in workers}
            meaning = f"1 while {worker_name} is in use, 0 while it is excluded because it fails."
            yield _gauge(f"{part}_worker_up", meaning, up, labels=("worker",))
            running: Samples = {(worker.url,): worker.num_running for worker in workers}
            meaning = f"Calls of {worker_name} in flight."
            yield _gauge(f"{part}_worker_running", meaning, running, labels=("worker",))
        yield _counter(
            "fallbacks",
            "Missing scores, by dialect and reason.",
            {} if self._fallbacks is None else dict(self._fallbacks.counts.items()),
            labels=("dialect", "reason"),
        )

    def describe(self) -> Iterable[Metric]:
        return []


def _slots(stats: PoolStats) -> Samples:
    return {("idle",): stats.num_idle, ("busy",): stats.num_busy, ("waiting",): stats.num_waiting}


def _gauge(name: str, meaning: str, samples: Samples, *, labels: Sequence[str] = ()) -> Metric:
    return _with_samples(GaugeMetricFamily(f"tirjudge_{name}", meaning, labels=labels), samples)


def _counter(name: str, meaning: str, samples: Samples, *, labels: Sequence[str] = ()) -> Metric:
    return _with_samples(CounterMetricFamily(f"tirjudge_{name}", meaning, labels=labels), samples)


def _with_samples(family: GaugeMetricFamily | CounterMetricFamily, samples: Samples) -> Metric:
    for values, number in sorted(samples.items()):
        family.add_metric(values, number)
    return family
