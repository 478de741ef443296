"""The load during a run: how many judgments ran at once, and how long the judgments took that ran alone.

The seconds of a judgment depend on how many others share the engine with it. Judgments that overlap no other one show the
latency of a single request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.statistics.rates import Distribution, spread_of, unique_judgments

RESOLUTION_S = 1.0
"""Resolution of the time at which a judgment ended, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load during a run."""

    at_once: float | None
    """Mean number of judgments that were made at once: the sum of their seconds / the seconds from the first start to the
    last end. A run that was interrupted has a lower mean. None: no judgments."""
    alone_s: Distribution | None
    """Seconds of the judgments that overlapped no other one. None: there is none."""
    num_alone: int
    """Number of these judgments."""


def load_of(judged: Sequence[JudgedExample]) -> Load:
    """Return the load during a run. Judgments of other runs on the same engine are not known.

    `Judgment.created` has whole seconds. So the time of a judgment is taken as one second longer, and a judgment counts as
    alone only if that longer time overlaps no other.
    """
    timings = [(judgment.created, judgment.timing.total_s) for judgment, _ in unique_judgments(judged)]
    if not timings:
        return Load(at_once=None, alone_s=None, num_alone=0)
    seconds = np.array([total for _, total in timings])
    ends = np.array([float(created) for created, _ in timings])
    order = np.argsort(ends - seconds, kind="stable")
    seconds, starts, ends = seconds[order], (ends - seconds)[order], ends[order] + RESOLUTION_S
    latest = np.maximum.accumulate(ends)
    is_alone = np.ones(len(starts), dtype=bool)
    is_alone[1:] &= latest[:-1] <= starts[1:]
    is_alone[:-1] &= starts[1:] >= ends[:-1]
    return Load(
        at_once=float(seconds.sum() / max(latest[-1] - RESOLUTION_S - starts[0], seconds.max(), 1e-9)),
        alone_s=spread_of(seconds[is_alone].tolist()),
        num_alone=int(is_alone.sum()),
    )
