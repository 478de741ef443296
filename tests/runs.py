"""Small runs in folders, written by the harness: with manually written judgments, or with hostile texts in every field."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from tests.judgments import build_judgment, build_rollout, build_rollout_verdict, build_turn, build_verdict
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.errors import EngineUnavailable
from tirjudge.judge import Judge
from tirjudge.profile import Profile
from tirjudge.tools.python import PythonTool
from tirjudge.types import JudgeRequest, Judgment, Mode, Outcome, RolloutRecord
from tirjudge_harness.bench_run import RunContext, load_own_data, run_data
from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.own_data.mapping import GivenColumns
from tirjudge_harness.planning import RunSettings
from tirjudge_harness.protocols import BOTH_ORDERS
from tirjudge_harness.run import AskedComparison, DataManifest, JudgeManifest, PlannedExample, RunManifest, write_run
from tirjudge_sandbox import SandboxPool

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
    content: str | None = None
    """Hash of the texts. None: not recorded."""


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
            place=place,
            outline=outline_of(pair),
            asked=(AskedComparison(responses=(0, 1), key=f"key-{pair.id}"),),
            content=pair.content,
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


HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "</pre></main></style><svg onload=alert(3)>",
    "javascript:alert(4)",
    "\"'><b onmouseover=alert(5) autofocus onfocus=alert(6)>",
    "\x1b[31mred\x1b]8;;javascript:alert(7)\x07link",
    "\u202egpj.exe\u2066",
    "{{ 7 * 7 }}{% include 'x' %}",
    "&lt;b&gt;",
    "\x00\x07\x7f",
    "<!-- ",
    "]]>",
)
"""Texts that would run, load or break something on a careless page."""

HOSTILE_TEXT = " ".join(HOSTILE)
HUGE_LINE = "x<b>" * 250_000
"""A line of a million characters."""


def _write_hostile(sequence: str) -> str:
    """Write a program that prints hostile text, then a verdict with hostile text."""
    if "is exe" not in sequence:
        return f"{HOSTILE_TEXT} {HUGE_LINE}\n```python\nprint('is exe', {HOSTILE_TEXT!r})\n```\n```output\n"
    return f"{HOSTILE_TEXT}<preference>A</preference>"


async def judge_hostile_rows(folder: Path, *, pool: SandboxPool) -> Path:
    """Judge rows with hostile texts by a judge that writes hostile texts, and return the folder of the run. The names of the
    file, the run, the judge and the subsets are hostile, too. A request fails with a hostile message."""
    rows = folder / 'rows"><img src=x onerror=alert(8)>.jsonl'
    first = {"prompt": HOSTILE_TEXT + HUGE_LINE, "response_a": HOSTILE_TEXT, "response_b": HUGE_LINE, "winner": "A"}
    made = [{**first, "id": f"{number} {text}", "category": text} for number, text in enumerate(HOSTILE)]
    made.append({**first, "prompt": "broken", "id": f"broken {HOSTILE_TEXT}", "category": HOSTILE_TEXT})
    rows.write_text("".join(json.dumps(row) + "\n" for row in made))
    judge = Judge(engine=ScriptedEngine(_write_hostile), tools=(PythonTool(pool),), profile=Profile(name="scripted"))

    async def judging(request: JudgeRequest) -> Judgment:
        if request.prompt == "broken":
            raise EngineUnavailable(HOSTILE_TEXT)
        return await judge.judge(request)

    opened = OpenJudge(judge=judging, kind="local", url=None, model=HOSTILE_TEXT, fingerprint="0123")
    console = Console(file=io.StringIO())
    data = load_own_data(rows, parts=(), given=GivenColumns(), max_error_rate=None, console=console)
    settings = RunSettings(protocol=BOTH_ORDERS, data=rows, mode=Mode.PAIRWISE)
    context = RunContext(opened=opened, concurrency=4, console=console)
    out = folder / 'run"><img src=x onerror=alert(9)> javascript:x'
    await run_data(data, out=out, settings=settings, context=context)
    return out
