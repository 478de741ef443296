"""Of pairs that a judge orders wrong, how many have two different programs for one prompt, one beside each response.

    python benchmarks/bundled_errors.py [CHECKPOINT] --out FILE

What to check follows from the prompt alone. A judge whose checks change with the response guesses them from it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from reporting import Out, report

from tirjudge.concurrency import map_concurrently
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.judge import Judge
from tirjudge.model import bundled_checkpoint, fingerprint
from tirjudge.profile import load_profile
from tirjudge.tools.python import PythonTool
from tirjudge.types import Judgment
from tirjudge_sandbox import SandboxPool
from tirjudge_training.bundled.build import EVALUATION_SEED
from tirjudge_training.bundled.evaluate import CONCURRENCY, TEST_SETS, draw_items
from tirjudge_training.synthetic.programs import END_OF_CHECKS

SET = "pointwise pairs, one instruction"


def main(
    checkpoint: Annotated[Path | None, typer.Argument(help="Default: the bundled judge.")] = None,
    items: Annotated[int, typer.Option(help="Held-out pairs.")] = 1000,
    out: Out = None,
) -> None:
    """Judge held-out pairs, and look at those that are ordered wrong."""
    folder = checkpoint or bundled_checkpoint()
    wrong = asyncio.run(ordered_wrong(folder, items=items))
    two_programs = sum(len(checks_of(judgment)) > 1 for judgment in wrong)
    figures = {"num_items": items, "num_wrong": len(wrong), "num_wrong_with_two_programs": two_programs}
    report({"judge": fingerprint(folder), "set": SET, **figures}, out)


async def ordered_wrong(folder: Path, *, items: int) -> list[Judgment]:
    """The judgments of pairs whose better response does not get the better score."""
    test_set = next(one for one in TEST_SETS if one.name == SET)
    drawn = list(draw_items(test_set, num_items=items, seed=EVALUATION_SEED))
    engine = EmbeddedEngine.load(folder)
    try:
        async with SandboxPool() as pool:
            judge = Judge(engine=engine, tools=[PythonTool(pool)], profile=load_profile(folder))
            asking = (judge.judge(request) for request, _ in drawn)
            judgments = await map_concurrently(asking, num_at_once=CONCURRENCY)
    finally:
        engine.close()
    pairs = zip(judgments, drawn, strict=True)
    return [judgment for judgment, (_, label) in pairs if judgment.verdict.best != label]


def checks_of(judgment: Judgment) -> set[str]:
    """The checks that its rollouts begin with."""
    return {rollout.turns[0].text.partition(END_OF_CHECKS)[0] for rollout in judgment.rollouts}


if __name__ == "__main__":
    typer.run(main)
