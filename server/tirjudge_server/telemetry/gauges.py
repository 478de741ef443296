"""Where a server stands: numbers that are read when somebody asks, not kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tirjudge.http.workers import Worker
from tirjudge_sandbox.pool import PoolStats
from tirjudge_server.failure import Fallbacks
from tirjudge_server.service import JudgeService


class Gauges(Collector):
    """As `Metrics`, which has the arguments."""

    def __init__(
        self, service: JudgeService, *, pool: Callable[[], PoolStats] | None, fallbacks: Fallbacks | None
    ) -> None:
        self._service = service
        self._pool = pool
        self._fallbacks = fallbacks

    def collect(self) -> Iterable[Metric]:
        service = self._service
        yield _identity(service)
        yield GaugeMetricFamily("tirjudge_inflight", "Judgments under way.", value=service.admission.num_running)
        yield GaugeMetricFamily(
            "tirjudge_queue_depth", "Judgments that wait for a place.", value=service.admission.num_waiting
        )
        yield GaugeMetricFamily("tirjudge_ready", "1 while judgments can be made.", value=_is_ready(service))
        yield _circuits(service)
        yield CounterMetricFamily(
            "tirjudge_joined", "Requests that found their judgment in flight.", value=service.in_flight.num_joined
        )
        yield CounterMetricFamily(
            "tirjudge_cache_hits", "Requests that found their judgment in the records.", value=service.num_recalled
        )
        yield _pool(self._pool)
        for part in ("engine", "sandbox"):
            yield from _workers(part, service.workers().get(part, ()))
        yield _fallbacks(self._fallbacks)

    def describe(self) -> Iterable[Metric]:
        return []


def _identity(service: JudgeService) -> Metric:
    family = GaugeMetricFamily(
        "tirjudge_info", "Always 1; what judges.", labels=["version", "model", "fingerprint", "isolation"]
    )
    model = service.judge.profile.name
    family.add_metric([version("tirjudge"), model, service.fingerprint or "", service.isolation or ""], 1)
    return family


def _is_ready(service: JudgeService) -> bool:
    return service.readiness.problem is None and not service.draining.has_begun


def _circuits(service: JudgeService) -> Metric:
    family = GaugeMetricFamily(
        "tirjudge_circuit_open", "1 while requests fail at once, because it is known not to work.", labels=["part"]
    )
    for circuit in (service.readiness.engine, service.readiness.sandbox):
        family.add_metric([circuit.name], circuit.is_open)
    return family


def _pool(stats: Callable[[], PoolStats] | None) -> Metric:
    family = GaugeMetricFamily(
        "tirjudge_sandbox_pool", "Slots of the sandbox by state, and programs that wait for one.", labels=["state"]
    )
    if stats is not None:
        now = stats()
        for state, number in (("idle", now.num_idle), ("busy", now.num_busy), ("waiting", now.num_waiting)):
            family.add_metric([state], number)
    return family


def _workers(part: str, workers: Sequence[Worker]) -> Iterable[Metric]:
    up = GaugeMetricFamily(
        f"tirjudge_{part}_worker_up", f"1 while a worker of the {part} behind a URL is in use.", labels=["worker"]
    )
    running = GaugeMetricFamily(
        f"tirjudge_{part}_worker_running", f"What a worker of the {part} was asked and has not done.", labels=["worker"]
    )
    for worker in workers:
        up.add_metric([worker.url], worker.problem is None)
        running.add_metric([worker.url], worker.num_running)
    return up, running


def _fallbacks(fallbacks: Fallbacks | None) -> Metric:
    family = CounterMetricFamily(
        "tirjudge_fallbacks", "Scores that were missing and told in a dialect's own way.", labels=["dialect", "reason"]
    )
    counts = {} if fallbacks is None else fallbacks.counts
    for (dialect, absence), number in sorted(counts.items()):
        family.add_metric([dialect, absence], number)
    return family
