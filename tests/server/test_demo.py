"""`tirjudge demo`: how requests, judgments and verdicts are printed."""

from __future__ import annotations

import io
from itertools import cycle
from typing import Any

import pytest
from rich.console import Console

from tests.judgments import build_judgment, build_verdict
from tirjudge.client import AsyncClient
from tirjudge.types import Mode
from tirjudge_server.app import create_app
from tirjudge_server.demo import REQUESTS, show_judgment, show_request, shown_as, verdict_line

COUNTS = "Count commas.\n```python\nprint(response_a.count(','), response_b.count(','))\n```\n```output"


async def test_a_judgment_is_shown_with_program_output_and_verdict(make_service, listen) -> None:
    console = Console(file=io.StringIO(), width=100)
    service = make_service(cycle([COUNTS, "<preference>B</preference>"]))
    async with listen(create_app(service)) as url, AsyncClient(url) as client:
        show_request(REQUESTS[0], console=console)
        show_judgment(await client.judge(REQUESTS[0]), console=console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    for text in ("Do not use any commas.", "Count commas.", "response_a.count(',')", "output (ok)", "is best: A 0."):
        assert text in shown


def test_the_order_of_a_rollout_is_described_without_a_claim_about_bias() -> None:
    assert shown_as((1, 0)) == "The order is drawn from the content: the judge sees B as A, A as B."


def test_demo_has_one_request_of_each_mode() -> None:
    assert [request.mode for request in REQUESTS] == [Mode.PAIRWISE, Mode.POINTWISE, Mode.LISTWISE]


@pytest.mark.parametrize(
    ("mode", "verdict", "line"),
    [
        (
            Mode.PAIRWISE,
            {"status": "decided", "best": 1, "label": "B", "probabilities": [0.25, 0.75]},
            "B is best: A 0.250, B 0.750, in 0.50 s, 1 program run.",
        ),
        (
            Mode.PAIRWISE,
            {"status": "tie", "probabilities": [0.5, 0.5], "reason": "orders_disagree"},
            "A tie (orders_disagree): A 0.500, B 0.500, in 0.50 s, 1 program run.",
        ),
        (
            Mode.POINTWISE,
            {"status": "decided", "label": "7", "scores": [6.6], "probabilities": [0.9], "forced": True},
            "Score 6.6 of 10, forced, in 0.50 s, 1 program run.",
        ),
        (
            Mode.LISTWISE,
            {"status": "abstained", "reason": "length"},
            "No verdict (length), in 0.50 s, 1 program run.",
        ),
    ],
)
def test_verdict_is_printed_as_a_sentence(mode: Mode, verdict: dict[str, Any], line: str) -> None:
    judgment = build_judgment(build_verdict(**verdict), mode=mode, tool_calls=1, total_s=0.5)
    assert verdict_line(judgment) == line
