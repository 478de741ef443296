"""Fixtures that build judgments and input files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.judgments import Status, build_judgment, build_rollout, build_rollout_verdict, build_turn, build_verdict
from tirjudge.types import JudgeRequest, Judgment, Mode, Outcome, RolloutRecord, StopReason

MakeJudgment = Callable[..., Judgment]


def scored(index: int, score: float | None) -> RolloutRecord:
    """A rollout over one response whose judge wrote that score; None: it wrote none."""
    verdict = None
    if score is not None:
        label = f"{score:g}"
        verdict = build_rollout_verdict(label, score=score, probabilities={label: 1.0})
    return build_rollout([index], verdict=verdict)


@pytest.fixture
def make_judgment() -> MakeJudgment:
    def make(
        *,
        mode: Mode = Mode.PAIRWISE,
        status: Status = "decided",
        best: int | None = 0,
        scores: list[float | None] | None = None,
        rollouts: Sequence[tuple[StopReason, Sequence[Outcome]]] = ((StopReason.VERDICT, ()),),
    ) -> Judgment:
        records = [
            build_rollout(turns=[build_turn(outcome) for outcome in outcomes], stop_reason=stop_reason)
            for stop_reason, outcomes in rollouts
        ]
        return build_judgment(
            build_verdict(status, best=best, scores=scores),
            mode=mode,
            rollouts=[scored(index, score) for index, score in enumerate(scores)] if scores else records,
            input_tokens=100,
            output_tokens=10,
            total_s=0.1,
            engine_s=0.1,
        )

    return make


@pytest.fixture
def write_lines(tmp_path: Path) -> Callable[..., Path]:
    def write(lines: Sequence[dict[str, Any] | bytes], *, name: str = "in.jsonl") -> Path:
        path = tmp_path / name
        content = b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


@pytest.fixture
def pairs() -> list[dict[str, Any]]:
    """Ten pairs, each with label 0."""
    return [{"id": f"i{n}", "prompt": f"p{n}", "responses": ["a", "b"], "label": 0} for n in range(10)]


class FirstIsBest:
    """A judge that always chooses the first response, and records the prompts."""

    def __init__(self, make_judgment: MakeJudgment) -> None:
        self.prompts: list[str] = []
        self.make_judgment = make_judgment

    async def __call__(self, request: JudgeRequest) -> Judgment:
        assert isinstance(request.prompt, str)
        self.prompts.append(request.prompt)
        return self.make_judgment(mode=request.mode)


@pytest.fixture
def first_is_best(make_judgment: MakeJudgment) -> FirstIsBest:
    return FirstIsBest(make_judgment)
