"""Adaptive limit for the number of concurrent requests.

The limit doubles until the first refusal or increase of latency, and then grows by one. It grows after as many answers as
the limit if the mean latency is acceptable: compared with an earlier limit, the latency may grow with the square root of
the limit, as in an engine that batches. If the latency grows faster, requests wait in a queue, and the limit stays. After
`PATIENCE` such measurements, the current latency becomes the new reference, because latency also grows with harder
requests. A response of 429 or 503, a timeout or a broken connection halves the limit. Several failures of requests that
started under the same limit count as one.
"""

from __future__ import annotations

import math

FIRST = 32
"""Initial limit, if the maximum is not smaller."""

SLACK = 1.1
"""Tolerance factor for the mean latency, because the mean is over few requests."""

PATIENCE = 4
"""Number of consecutive measurements with too high latency, after which this latency becomes the reference."""


class Pace:
    """The limit and its adaptation. The class reads no clock: the caller passes latencies.

    Args:
        most: maximum limit.
        first: initial limit.

    Raises:
        ValueError: `most` is less than 1.
    """

    def __init__(self, *, most: int, first: int = FIRST) -> None:
        if most < 1:
            raise ValueError(f"concurrency: must be at least 1, got {most}")
        self.most = most
        self.limit = min(first, most)
        self.num_refusals = 0
        """Number of times that the limit was halved."""
        self._steep = True
        self._stage = 0
        self._latencies: list[float] = []
        self._base: tuple[int, float] | None = None
        """Reference: a limit, and the mean latency under this limit in seconds."""
        self._num_held = 0

    def begin(self) -> int:
        """Start a request. Return the number of the current stage, to pass to `answered` or `refused`. A stage is the time
        between two changes of the limit.
        """
        return self._stage

    def answered(self, latency_s: float, *, stage: int) -> None:
        """Record a request that was answered at the first attempt.

        Args:
            latency_s: time from request to answer in seconds.
            stage: return value of `begin`. Requests of earlier stages are ignored.
        """
        if stage != self._stage:
            return
        self._latencies.append(latency_s)
        if len(self._latencies) >= self.limit:
            self._measure()

    def refused(self, *, stage: int) -> None:
        """Record a request that was refused, or that failed because the server was unavailable."""
        if stage != self._stage:
            return
        self.num_refusals += 1
        self._steep = False
        self._set(max(1, self.limit // 2))

    def _measure(self) -> None:
        """Increase the limit if the mean latency is acceptable."""
        latency_s = sum(self._latencies) / len(self._latencies)
        self._latencies.clear()
        if self._base is None or self._base[0] == self.limit:
            self._base = self.limit, latency_s
        base_limit, base_s = self._base
        if latency_s <= SLACK * base_s * math.sqrt(max(1.0, self.limit / base_limit)):
            self._num_held = 0
            if self.limit < self.most:
                self._set(min(self.most, 2 * self.limit if self._steep else self.limit + 1))
            return
        self._steep = False
        self._num_held += 1
        if self._num_held == PATIENCE:
            self._base, self._num_held = (self.limit, latency_s), 0

    def _set(self, limit: int) -> None:
        self.limit = limit
        self._stage += 1
        self._latencies.clear()
