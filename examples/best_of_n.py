"""Choose the best of several answers, by a knockout of comparisons."""

import asyncio

from tirjudge.best_of_n import select
from tirjudge.opening import open_judge

PROMPT = "Describe the sea in at least 3 sentences. Do not use any commas."
ANSWERS = [
    "The sea is wide, blue and deep. It moves.",
    "The sea is wide. It is blue. It moves.",
    "Sea, sea.",
    "The sea is wide. It is blue.",
]


async def main() -> None:
    """Print the ranking."""
    async with open_judge() as judge:
        found = await select(PROMPT, ANSWERS, judge=judge.judge, method="knockout")
    for index in found.ranking:
        print(f"{found.scores[index]:.2f}  {ANSWERS[index]}")


asyncio.run(main())
