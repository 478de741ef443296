"""Validation: evaluates a checkpoint on held-out items with `Judge.judge`, as in serving, with greedy decoding."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

from tirjudge.concurrency import map_concurrently
from tirjudge.durable import write_file
from tirjudge.judge import Judge
from tirjudge.right import is_right
from tirjudge.selective import GradedItem, SelectiveAccuracy, selective_accuracy
from tirjudge.statistics import ratio, wilson_interval
from tirjudge.types import Basis, Judgment, Outcome, RolloutRecord
from tirjudge_training.gate import ValidationScore
from tirjudge_training.items import TrainingItem
from tirjudge_training.run_folder import CellRecord, ValidationRecord

CONCURRENCY = 16
"""Default maximum number of concurrent judgments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedItem:
    """Results of one held-out item."""

    item_id: str
    task: str
    mode: str
    verifiable: bool
    right: bool
    """Whether the best response was named. A tie, an abstention and a missing verdict count as wrong."""
    num_rollouts: int
    num_rollouts_with_calls: int
    """Number of rollouts with at least one program."""
    num_calls: int
    """Number of programs that ran."""
    num_failed_calls: int
    """Number of programs that failed."""
    num_without_verdict: int
    """Number of rollouts with a forced or missing verdict."""
    has_verdict: bool | None = None
    """Whether the judgment has a verdict. None: not recorded, in older files."""
    basis: Basis | None = None
    """Basis of the verdict. None: no verdict, or not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Results of all held-out items."""

    judged: tuple[ValidatedItem, ...]

    @property
    def cells(self) -> dict[str, tuple[int, int]]:
        """Numbers of items: "task/mode" -> (right, all), in alphabetical order."""
        found: dict[str, list[bool]] = defaultdict(list)
        for item in self.judged:
            found[f"{item.task}/{item.mode}"].append(item.right)
        return {name: (sum(found[name]), len(found[name])) for name in sorted(found)}

    @property
    def accuracy(self) -> float:
        """Mean over task x mode, so that a large task does not hide a small one."""
        return fmean(right / num for right, num in self.cells.values())

    @property
    def tool_use(self) -> float | None:
        """Share of the rollouts on verifiable items that ran a program. None: no such items."""
        verifiable = [item for item in self.judged if item.verifiable]
        return ratio(
            sum(item.num_rollouts_with_calls for item in verifiable), of=sum(item.num_rollouts for item in verifiable)
        )

    @property
    def failed_programs(self) -> float | None:
        """Share of the programs that failed. None: no program ran."""
        return ratio(sum(item.num_failed_calls for item in self.judged), of=sum(item.num_calls for item in self.judged))

    @property
    def no_verdict(self) -> float:
        """Share of the rollouts with a forced or missing verdict."""
        num_rollouts = sum(item.num_rollouts for item in self.judged)
        return sum(item.num_without_verdict for item in self.judged) / max(1, num_rollouts)

    @property
    def selective(self) -> SelectiveAccuracy | None:
        """Coverage, and accuracy over the items with a verdict. None: verdicts are not recorded, in older files."""
        known = [
            GradedItem(credit=float(item.right), has_verdict=item.has_verdict, basis=item.basis)
            for item in self.judged
            if item.has_verdict is not None
        ]
        return selective_accuracy(known) if len(known) == len(self.judged) else None

    def score(self) -> ValidationScore:
        """Return the results that the gate uses."""
        right = {item.item_id: item.right for item in self.judged}
        return ValidationScore(accuracy=self.accuracy, tool_use=self.tool_use, right=right, selective=self.selective)

    def record(self) -> ValidationRecord:
        """Return the record for the state of a run."""
        num = len(self.judged)
        low, high = wilson_interval(self.accuracy * num, num_trials=num)
        cells = {}
        for name, (right, of) in self.cells.items():
            cell_low, cell_high = wilson_interval(right, num_trials=of)
            cells[name] = CellRecord(num=of, num_right=right, low=cell_low, high=cell_high)
        return ValidationRecord(
            accuracy=self.accuracy, low=low, high=high, num=num, tool_use=self.tool_use,
            failed_programs=self.failed_programs, no_verdict=self.no_verdict, cells=cells,
            selective=None if self.selective is None else self.selective.as_json(),
        )  # fmt: skip

    def metrics(self) -> dict[str, float | None]:
        """Return the metrics for metrics.jsonl. None: there was nothing to measure."""
        cells, selective = self.cells, self.selective
        return {
            "val/acc": self.accuracy,
            "val/n": float(len(self.judged)),
            "val/tool_use": self.tool_use,
            "val/failed_programs": self.failed_programs,
            "val/no_verdict": self.no_verdict,
            **({} if selective is None else _selective_metrics(selective)),
            **{f"val/acc/{name}": right / num for name, (right, num) in cells.items()},
            **{f"val/n/{name}": float(num) for name, (_, num) in cells.items()},
        }


def _selective_metrics(found: SelectiveAccuracy) -> dict[str, float | None]:
    shares = {f"val/{name}": group.share for name, group in found.by_basis.items()}
    return {"val/coverage": found.coverage, "val/acc_of_verdicts": found.accuracy, **shares}


async def validate(
    judge: Judge,
    items: Sequence[TrainingItem],
    *,
    seed: int,
    tools: Literal["auto", "off"] = "auto",
    max_tool_calls: int = 3,
    concurrency: int = CONCURRENCY,
    on_item: Callable[[], None] | None = None,
) -> Validation:
    """Judge held-out items.

    Args:
        judge: Judge with the checkpoint to evaluate and a real sandbox.
        items: Items with known labels.
        seed: Seed of the requests. It determines the order in which responses are shown.
        tools: As in a request. "off": for a judge trained on text only.
        max_tool_calls: Maximum number of tool calls per rollout.
        concurrency: Maximum number of concurrent judgments.
        on_item: Called after each item.

    Raises:
        ValueError: no items given, or an item has no label.
        EngineUnavailable, SandboxUnavailable: a judgment failed; no result is returned.
    """
    if not items:
        raise ValueError("validation: no items given; set a larger validation.share")
    unknown = next((item.id for item in items if item.best is None), None)
    if unknown is not None:
        raise ValueError(f"validation: item {unknown} has no label (best); give items with labels")

    async def judged(item: TrainingItem) -> ValidatedItem:
        request = item.request(seed=seed, temperature=0.0, tools=tools, max_tool_calls=max_tool_calls)
        found = judged_item(item, await judge.judge(request))
        if on_item is not None:
            on_item()
        return found

    return Validation(judged=tuple(await map_concurrently(map(judged, items), num_at_once=concurrency)))


def judged_item(item: TrainingItem, judgment: Judgment) -> ValidatedItem:
    """Compare a judgment with the label of its item, and count its rollouts and programs."""
    return ValidatedItem(
        item_id=item.id,
        task=item.task,
        mode=item.mode.value,
        verifiable=item.verifiable,
        right=item.best is not None and names_best(judgment, item.best),
        num_without_verdict=sum(not rollout.stop_reason.is_verdict for rollout in judgment.rollouts),
        has_verdict=judgment.verdict.status != "abstained",
        basis=judgment.verdict.basis,
        **call_counts(judgment.rollouts),
    )


def names_best(judgment: Judgment, best: int) -> bool:
    """Whether a judgment names the best response, by the definition that rewards and benchmarks share."""
    counted = is_right(judgment, best)
    return counted is not None and counted[0] == "right"


def call_counts(rollouts: Sequence[RolloutRecord]) -> dict[str, int]:
    """Count rollouts and programs. The keys are fields of `ValidatedItem` and of the bundled judge's scores."""
    outcomes = [rollout.outcomes for rollout in rollouts]
    return {
        "num_rollouts": len(rollouts),
        "num_rollouts_with_calls": sum(map(bool, outcomes)),
        "num_calls": sum(map(len, outcomes)),
        "num_failed_calls": sum(outcome is not Outcome.OK for each in outcomes for outcome in each),
    }


def write_validation(validation: Validation, path: Path) -> None:
    """Write the results to a JSON file, one row per item."""
    write_file(path, json.dumps([asdict(item) for item in validation.judged], indent=0) + "\n", closed=False)


def read_validation(path: Path) -> Validation:
    """Read the results from a file written by `write_validation`."""
    return Validation(judged=tuple(ValidatedItem(**row) for row in json.loads(path.read_text(encoding="utf-8"))))


def count_by_task(items: Sequence[TrainingItem]) -> Mapping[str, int]:
    """Return the number of items: "task/mode" -> count."""
    return dict(sorted(Counter(f"{item.task}/{item.mode.value}" for item in items).items()))
