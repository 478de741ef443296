"""Whether a judgment can be made now: one is, at the start, and again after every failure of the engine or the sandbox."""

from __future__ import annotations

import asyncio

from tirjudge.errors import TirjudgeError
from tirjudge.judge import Judge
from tirjudge.types import JudgeRequest, Mode

TRIAL = JudgeRequest(
    mode=Mode.PAIRWISE, prompt="Write one sentence. Use no commas.", responses=["It rains.", "Yes, it rains."]
)
"""A whole judgment, so that what passes it has an engine that works."""

TRIAL_PROGRAM = "print(1)"
"""Run as well, because a model need not write a program for the trial."""

RETRY_S = 1.0
"""Between two trials that fail."""


class Readiness:
    """In doubt until a trial judgment was made, and again as soon as a judgment failed for a reason of ours."""

    def __init__(self) -> None:
        self.problem: str | None = "the first judgment is under way"
        """Why nothing can be judged; None when it can."""
        self._in_doubt = asyncio.Event()
        self._in_doubt.set()
        self._ready = asyncio.Event()

    def doubt(self, error: TirjudgeError) -> None:
        """A judgment failed with this."""
        self.problem = str(error)
        self._ready.clear()
        self._in_doubt.set()

    async def wait(self) -> None:
        """Until it is ready."""
        await self._ready.wait()

    async def watch(self, judge: Judge) -> None:
        """Make a trial judgment whenever there is doubt, until cancelled."""
        tools = "off" if judge.sandbox is None else "auto"
        trial = TRIAL.model_copy(update={"tools": tools})
        while True:
            await self._in_doubt.wait()
            try:
                if judge.sandbox is not None:
                    await judge.sandbox.run(TRIAL_PROGRAM, bindings={})
                await judge.judge(trial)
            except TirjudgeError as error:
                self.problem = str(error)
                await asyncio.sleep(RETRY_S)
            else:
                self.problem = None
                self._in_doubt.clear()
                self._ready.set()
