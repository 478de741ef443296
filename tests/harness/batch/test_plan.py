from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.harness.batch.scripted_judge import pair
from tirjudge_harness.batch import inputs
from tirjudge_harness.batch.inputs import row_ranges_of, rows_in
from tirjudge_harness.batch.plan import BatchPlan, plan_batch
from tirjudge_harness.items import InputError


def plan_of(*paths: Path, results: Mapping[str, str] | None = None, limit: int | None = None) -> BatchPlan:
    return plan_batch([str(path) for path in paths], find=(results or {}).get, limit=limit)


def left(plan: BatchPlan) -> list[str]:
    return [row.key for piece in plan.pieces for row in piece.rows()]


def digests(path: Path) -> dict[str, str]:
    rows = [row for part in row_ranges_of(str(path)) for row in rows_in(part)]
    return {row.key: row.digest for row in rows}  # type: ignore[union-attr]


@pytest.fixture(autouse=True)
def short_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "RANGE_ROWS", 3)


def test_rows_with_a_result_are_not_judged_again(write_lines) -> None:
    path = write_lines([pair(n) for n in range(8)])
    results = {key: digest for key, digest in digests(path).items() if key in ("k0", "k1", "k2", "k4")}
    plan = plan_of(path, results=results)
    assert left(plan) == ["k3", "k5", "k6", "k7"]
    assert [piece.num_rows for piece in plan.pieces] == [2, 2]
    assert (plan.num_rows, plan.num_keys, plan.num_left) == (8, 8, 4)


def test_a_repeated_row_is_judged_once(write_lines) -> None:
    plan = plan_of(write_lines([pair(0), pair(1), pair(2), pair(0)]), write_lines([pair(1)], name="more.jsonl"))
    assert left(plan) == ["k0", "k1", "k2"]
    assert (plan.num_repeated, plan.bad) == (2, ())


def test_a_row_with_the_key_of_a_different_request_is_invalid(write_lines) -> None:
    path = write_lines([pair(0), pair(0, prompt="another"), pair(1)])
    plan = plan_of(path, results={"k1": "0" * 64})
    assert left(plan) == ["k0"]
    assert [(row.number, row.problem) for row in plan.bad] == [
        (2, "key 'k0' is not unique: an earlier row has the same key but a different request"),
        (3, "key 'k1' is not unique: the output has a result with the same key for a different request"),
    ]


def test_the_limit_includes_keys_with_a_result(write_lines) -> None:
    path = write_lines([pair(0), b"oops\n", *[pair(n) for n in range(1, 9)]])
    plan = plan_of(path, results={"k0": digests(write_lines([pair(0)], name="one.jsonl"))["k0"]}, limit=4)
    assert left(plan) == ["k1", "k2", "k3"]
    assert (plan.num_keys, len(plan.bad)) == (4, 1)


def test_the_plan_states_whether_a_request_can_run_programs(write_lines) -> None:
    assert not plan_of(write_lines([pair(0)])).offers_tools
    assert plan_of(write_lines([pair(0), pair(1, tools="auto")])).offers_tools


def test_an_empty_input_is_rejected(write_lines) -> None:
    with pytest.raises(InputError, match="no rows found"):
        plan_of(write_lines([b"\n"]))
