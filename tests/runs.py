"""Small runs with manually written judgments, written to folders by the harness itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.judgments import build_judgment, build_rollout, build_rollout_verdict, build_turn, build_verdict
from tirjudge.types import Judgment, Mode, Outcome, RolloutRecord
from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.run import AskedComparison, DataManifest, JudgeManifest, PlannedExample, RunManifest, write_run

CREATED = 1_700_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A pair whose first response is right by default, and the judge's choice in each order."""

    id: str
    subset: str = "math"
    named: tuple[int | None, ...] = (0,)
    """The response chosen when shown in order 0, 1, then in order 1, 0. None: no verdict."""
    probability: float = 0.9
    """Probability of the chosen response."""
    outcome: Outcome | None = None
    """Outcome of a program that runs before the verdict. None: no program runs."""
    models: tuple[str, str] | None = None
    """Models of the two responses. None: not named."""
    correct: tuple[int, ...] = (0,)
    """Indexes of the right responses. Both: a tie, which is not a comparison."""
    tags: dict[str, str] = field(default_factory=dict)


def judgment_of(pair: Pair) -> Judgment:
    orders = [[0, 1], [1, 0]][: len(pair.named)]
    rollouts = [_rollout(pair, order=order, named=named) for order, named in zip(orders, pair.named, strict=True)]
    agreed = pair.named[0] if len(set(pair.named)) == 1 else None
    return build_judgment(
        build_verdict("tie" if agreed is None else "decided", best=agreed),
        id=f"jdg_{pair.id}",
        created=CREATED,
        model="tiny",
        rollouts=rollouts,
        input_tokens=100,
        output_tokens=20,
        tool_calls=0,
        total_s=2.0,
        engine_s=1.5,
        sandbox_s=0.25,
    )


def _rollout(pair: Pair, *, order: list[int], named: int | None) -> RolloutRecord:
    turns = [build_turn(text="The first is better.")]
    if pair.outcome is not None:
        text = "Let me count.\n```python\nprint(1)\n```\n"
        turns.insert(0, build_turn(pair.outcome, text=text, code="print(1)\n", output="1\n"))
    if named is None:
        return build_rollout(order, turns=turns)
    place = order.index(named)
    probabilities = dict.fromkeys("AB", 1 - pair.probability) | {"AB"[place]: pair.probability}
    verdict = build_rollout_verdict("AB"[place], best=named, probabilities=probabilities)
    return build_rollout(order, verdict=verdict, turns=turns)


def write_pairs(
    path: Path,
    pairs: Sequence[Pair],
    *,
    benchmark: str = "judgebench",
    unjudged: Sequence[str] = (),
    model: str = "tiny",
    data: dict[str, Any] | None = None,
    **manifest: Any,
) -> Path:
    """Write the folder of a run over pairs. Pairs whose ids are in `unjudged` are planned but have no judgment."""
    num_orders = max(len(pair.named) for pair in pairs)
    fields = (
        {"protocol": "both_orders", "orders": "both"} if num_orders == 2 else {"protocol": "paper", "orders": "single"}
    )
    whole = RunManifest(
        **{
            "benchmark": benchmark,
            "mode": Mode.PAIRWISE,
            "votes": 1,
            "judge": JudgeManifest(kind="local", model=model, fingerprint="0123456789abcdef"),
            "data": DataManifest.model_validate(
                {"path": "rows.jsonl", "sha256": "0" * 64, "num_examples": len(pairs), **(data or {})}
            ),
            "version": "0.1.0",
            "created": CREATED,
            **fields,
            **manifest,
        }
    )
    planned = [
        PlannedExample(
            place=place, outline=outline_of(pair), asked=(AskedComparison(responses=(0, 1), key=f"key-{pair.id}"),)
        )
        for place, pair in enumerate(pairs)
    ]
    judgments = {f"key-{pair.id}": judgment_of(pair) for pair in pairs if pair.id not in unjudged}
    write_run(path, manifest=whole, planned=planned, judgments=judgments)
    return path


def outline_of(pair: Pair) -> ExampleMetadata:
    return ExampleMetadata(
        id=pair.id,
        subset=pair.subset,
        num_responses=2,
        correct=pair.correct,
        cluster=pair.id,
        lengths=(10, 20),
        tags=pair.tags,
        facts=dict(zip(("model_a", "model_b"), pair.models or (), strict=False)),
    )
