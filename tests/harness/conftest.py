"""Fixtures that build judgments and input files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tirjudge.types import (
    JudgeRequest,
    Judgment,
    Mode,
    Outcome,
    RolloutRecord,
    RolloutVerdict,
    StopReason,
    Timing,
    TurnRecord,
    Usage,
    Verdict,
)

MakeJudgment = Callable[..., Judgment]


def scored(index: int, score: float | None) -> RolloutRecord:
    """A rollout over one response whose judge wrote that score; None: it wrote none."""
    verdict = None
    if score is not None:
        label = f"{score:g}"
        verdict = RolloutVerdict(
            label=label, best=None, score=score, probabilities={label: 1.0}, label_mass=1.0, forced=False
        )
    stop_reason = StopReason.NO_VERDICT if verdict is None else StopReason.VERDICT
    return RolloutRecord(order=[index], turns=[], stop_reason=stop_reason, verdict=verdict)


@pytest.fixture
def make_judgment() -> MakeJudgment:
    def make(
        *,
        mode: Mode = Mode.PAIRWISE,
        status: str = "decided",
        best: int | None = 0,
        scores: list[float | None] | None = None,
        rollouts: Sequence[tuple[StopReason, Sequence[Outcome]]] = ((StopReason.VERDICT, ()),),
    ) -> Judgment:
        nothing = dict.fromkeys(("label", "probabilities", "confidence", "label_mass"))
        return Judgment(
            id="jdg_1",
            created=0,
            mode=mode,
            model="judge",
            verdict=Verdict.model_validate(
                {**nothing, "status": status, "best": best, "scores": scores, "forced": False}
            ),
            rollouts=[scored(index, score) for index, score in enumerate(scores)]
            if scores
            else [
                RolloutRecord(
                    order=[0, 1],
                    turns=[TurnRecord(text="x", code="1", output="", outcome=outcome) for outcome in outcomes],
                    stop_reason=stop_reason,
                    verdict=None,
                )
                for stop_reason, outcomes in rollouts
            ],
            usage=Usage(input_tokens=100, cached_tokens=0, output_tokens=10, tool_calls=0, rollouts=1),
            timing=Timing(total_s=0.1, engine_s=0.1, sandbox_s=0.0),
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
