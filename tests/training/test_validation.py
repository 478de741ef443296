"""Validation records coverage and the accuracy of the verdicts beside accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tirjudge_training.run_folder import ValidationRecord
from tirjudge_training.validation import ValidatedItem, Validation, read_validation, write_validation


def item(number: int, *, right: bool, **fields: Any) -> ValidatedItem:
    return ValidatedItem(
        item_id=str(number),
        task="t",
        mode="pairwise",
        verifiable=True,
        right=right,
        num_rollouts=1,
        num_rollouts_with_calls=1,
        num_calls=1,
        num_failed_calls=0,
        num_without_verdict=0,
        **fields,
    )


NEW = Validation(
    judged=(
        item(0, right=True, has_verdict=True, basis="checked"),
        item(1, right=True, has_verdict=True, basis="reasoned"),
        item(2, right=False, has_verdict=True, basis="guessed"),
        item(3, right=False, has_verdict=False),
    )
)
OLD = Validation(judged=(item(0, right=True), item(1, right=False)))


def test_coverage_and_accuracy_of_the_verdicts_are_metrics(tmp_path: Path) -> None:
    write_validation(NEW, tmp_path / "eval.json")
    metrics = read_validation(tmp_path / "eval.json").metrics()
    assert metrics["val/acc"] == 0.5
    assert metrics["val/coverage"] == 0.75
    assert metrics["val/acc_of_verdicts"] == pytest.approx(2 / 3)
    assert [metrics[f"val/{basis}"] for basis in ("checked", "reasoned", "guessed")] == [0.25] * 3


def test_the_record_of_a_stage_has_them_and_an_older_record_has_none() -> None:
    record = NEW.record()
    assert record.selective is not None
    assert record.selective["coverage"] == 0.75
    older = record.model_dump(mode="json", exclude={"selective"})
    assert ValidationRecord.model_validate(older).selective is None
    assert OLD.record().selective is None
    assert not {"val/coverage", "val/checked"} & OLD.metrics().keys()
