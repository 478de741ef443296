"""Judge in the process of a Python program, without a server."""

import asyncio

from tirjudge.opening import open_judge
from tirjudge.types import JudgeRequest, Mode


async def main() -> None:
    """Score three answers, one at a time."""
    async with open_judge() as judge:
        for answer in ("red fox", "the red fox", "fox"):
            request = JudgeRequest(mode=Mode.POINTWISE, prompt="Write exactly two words.", responses=[answer])
            verdict = (await judge.judge(request)).verdict
            print(f"{answer!r}: score {verdict.label}, confidence {verdict.confidence:.3f}")


asyncio.run(main())
