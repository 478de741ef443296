"""The statistics of a run that its table and its charts share. Each is computed once, when it is first needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from tirjudge.calibration import Calibration, Confidence, calibration_of
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.reports.scored import ScoredRun
from tirjudge_harness.statistics.bias import Flips, Position, flips_of, positions_of
from tirjudge_harness.statistics.calibration import confidences_of
from tirjudge_harness.statistics.rates import (
    CodeErrors,
    ToolUse,
    VerdictRates,
    code_errors_of,
    tool_use_of,
    verdict_rates_of,
)


class RunStatistics:
    """Statistics of one run. Each is that of the function with its name and `_of`."""

    def __init__(self, run: ScoredRun) -> None:
        self.run = run

    @cached_property
    def judged(self) -> list[JudgedExample]:
        """The examples with decisions."""
        return self.run.judged

    @cached_property
    def verdict_rates(self) -> VerdictRates:
        return verdict_rates_of(self.run.marks)

    @cached_property
    def tool_use(self) -> ToolUse:
        return tool_use_of(self.judged, marks=self.run.marks)

    @cached_property
    def code_errors(self) -> list[CodeErrors]:
        return code_errors_of(self.judged)

    @cached_property
    def flips(self) -> Flips:
        return flips_of(self.judged)

    @cached_property
    def positions(self) -> Sequence[Position]:
        return positions_of(self.judged)

    @cached_property
    def confidences(self) -> Sequence[Confidence]:
        return confidences_of(self.judged, marks=self.run.marks)

    @cached_property
    def calibration(self) -> Calibration:
        return calibration_of(self.confidences)
