"""Turning the body of a request into a checked request object."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.pieces.conftest import WORDS
from tirjudge.http.rewards import JudgmentBatchRequest
from tirjudge.types import JudgeRequest
from tirjudge_web.body import parse_body


@pytest.mark.parametrize("num_sentences", [1, 10_000], ids=["small", "1.5 MB"])
def bench_judge_request(benchmark: BenchmarkFixture, pair: JudgeRequest, num_sentences: int) -> None:
    request = pair.model_copy(update={"responses": [WORDS * num_sentences] * 2})
    body = request.model_dump_json(exclude_defaults=True).encode()
    assert benchmark(parse_body, body, JudgeRequest).responses == request.responses


def bench_batch_of_100_requests(benchmark: BenchmarkFixture, pair: JudgeRequest) -> None:
    one = pair.model_dump_json(exclude_defaults=True)
    body = f'{{"requests": [{", ".join([one] * 100)}]}}'.encode()
    assert len(benchmark(parse_body, body, JudgmentBatchRequest).requests) == 100
