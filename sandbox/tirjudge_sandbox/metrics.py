"""The metrics of `/metrics`: programs by outcome and preset, run and queue times, and the state of the pool."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tirjudge.types import ExecResult
from tirjudge_sandbox.pool import PoolStats
from tirjudge_sandbox.wire import SANDBOX_ERROR

CONTENT_TYPE = CONTENT_TYPE_LATEST

_RUN_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_QUEUE_BUCKETS = (0.0001, 0.001, *_RUN_BUCKETS)


class SandboxMetrics:
    """The metrics of one service.

    Args:
        stats: returns the current statistics of the pool.
    """

    def __init__(self, stats: Callable[[], PoolStats]) -> None:
        self._registry = CollectorRegistry()
        self._programs = Counter(
            "tirjudge_sandbox_programs", "Programs by outcome.", ["outcome", "preset"], registry=self._registry
        )
        self._turned_away = Counter(
            "tirjudge_sandbox_turned_away", "Programs rejected because the queue was full.", registry=self._registry
        )
        self._run_s = Histogram(
            "tirjudge_sandbox_run_seconds", "Wall time of programs.", buckets=_RUN_BUCKETS, registry=self._registry
        )
        self._cpu_s = Histogram(
            "tirjudge_sandbox_cpu_seconds", "CPU time of programs.", buckets=_RUN_BUCKETS, registry=self._registry
        )
        self._queue_s = Histogram(
            "tirjudge_sandbox_queue_seconds",
            "Time that programs waited for a slot.",
            buckets=_QUEUE_BUCKETS,
            registry=self._registry,
        )
        self._registry.register(_PoolGauges(stats))

    def add(self, result: ExecResult) -> None:
        """Count a program that ended."""
        self._programs.labels(result.outcome, result.preset).inc()
        self._run_s.observe(result.wall_s)
        self._cpu_s.observe(result.cpu_s)
        self._queue_s.observe(result.queue_s)

    def add_failure(self) -> None:
        """Count a program that could not be run, or was lost."""
        self._programs.labels(SANDBOX_ERROR, "").inc()

    def add_turned_away(self) -> None:
        """Count a program rejected because the queue was full."""
        self._turned_away.inc()

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self._registry)


class _PoolGauges(Collector):
    """Gauges for the numbers in a pool's statistics, read at each scrape."""

    def __init__(self, stats: Callable[[], PoolStats]) -> None:
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        stats = self._stats()
        yield GaugeMetricFamily("tirjudge_sandbox_up", "1 while the pool runs.", value=bool(stats.level))
        for field in fields(stats):
            value = getattr(stats, field.name)
            if isinstance(value, int | float):
                name = field.name.removeprefix("num_")
                yield GaugeMetricFamily(f"tirjudge_sandbox_pool_{name}", f"`{field.name}` of the pool.", value=value)

    def describe(self) -> Iterable[Metric]:
        return []
