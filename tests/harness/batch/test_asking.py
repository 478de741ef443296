"""A refused request is a result; a refused caller stops the run."""

from __future__ import annotations

import pytest

from tests.harness.batch.scripted_judge import pair
from tirjudge.http.exchange import RequestRefused
from tirjudge.http.protocol import Problem
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_harness.batch.asking import RowJudge
from tirjudge_harness.batch.inputs import BadRequestRow, RequestRow, row_ranges_of, rows_in
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.run_store import RunStopped


def asking_one_that_refuses(kind: str) -> RowJudge:
    async def refuse(request: JudgeRequest) -> Judgment:
        raise RequestRefused(Problem(message="model: 'other' given", type=kind))

    opened = OpenJudge(judge=refuse, kind="server", url="http://judge", model="tiny", fingerprint=None)
    return RowJudge(opened, concurrency=2, place="out")


@pytest.fixture
def rows(write_lines) -> list[RequestRow]:
    path = write_lines([pair(n, model="other") for n in range(12)])
    found: list[RequestRow | BadRequestRow] = [row for part in row_ranges_of(str(path)) for row in rows_in(part)]
    return [row for row in found if isinstance(row, RequestRow)]


async def test_refused_rows_are_results_and_do_not_stop_the_run(rows: list[RequestRow]) -> None:
    asking = asking_one_that_refuses("invalid_request_error")
    assert [(await asking.result(row))["error_kind"] for row in rows] == ["refused"] * 12


async def test_an_invalid_api_key_stops_the_run(rows: list[RequestRow]) -> None:
    asking = asking_one_that_refuses("authentication_error")
    with pytest.raises(RunStopped, match="the judge refuses the requests"):
        await asking.result(rows[0])
