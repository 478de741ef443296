"""Whether a judgment can be made now: one is, at the start, and again after every failure of the engine or the sandbox."""

from __future__ import annotations

import asyncio

from tirjudge.deadline import until
from tirjudge.errors import (
    DeadlineExceeded,
    EngineUnavailable,
    SandboxBusy,
    SandboxUnavailable,
    TirjudgeError,
    logged,
)
from tirjudge.judge import Judge
from tirjudge.tools.python import Sandbox
from tirjudge.types import JudgeRequest, Judgment, Mode
from tirjudge_server.circuit import Circuit

TRIAL_S = 60.0
"""Longest that a trial may take."""

TRIAL = JudgeRequest(
    mode=Mode.PAIRWISE,
    prompt="Write one sentence. Use no commas.",
    responses=["It rains.", "Yes, it rains."],
    deadline_s=TRIAL_S,
)
"""A whole judgment, so that what passes it has an engine that works."""

TRIAL_PROGRAM = "print(1)"
"""Run as well, because a model need not write a program for the trial."""

RETRY_S = 1.0
"""Between two trials that fail."""


class Readiness:
    """In doubt until a trial judgment was made, and again as soon as a judgment failed for a reason of ours.

    Attributes:
        problem: why nothing can be judged; None when it can.
        engine: the circuit of the engine.
        sandbox: the circuit of the sandbox.
    """

    def __init__(self) -> None:
        self.problem: str | None = "the first judgment is under way"
        self.engine = Circuit("engine", error=EngineUnavailable)
        self.sandbox = Circuit("sandbox", error=SandboxUnavailable)
        self._in_doubt = asyncio.Event()
        self._in_doubt.set()
        self._ready = asyncio.Event()

    def check(self, request: JudgeRequest) -> None:
        """Whether what a request needs is known not to work.

        Raises:
            EngineUnavailable, SandboxUnavailable: it is.
        """
        self.engine.check()
        if request.offers_tools:
            self.sandbox.check()

    def doubt(self, error: TirjudgeError) -> None:
        """A judgment failed with this. One that ran out of time may have asked for too much, or the engine hangs: a
        trial will tell, and until then nothing is said."""
        if isinstance(error, SandboxBusy):
            return
        if not isinstance(error, DeadlineExceeded):
            self._circuit_of(error).failed(error)
            self.problem = logged(error)
            self._ready.clear()
        self._in_doubt.set()

    def confirm(self, judgment: Judgment) -> None:
        """A judgment was made."""
        self.engine.succeeded()
        if judgment.usage.tool_calls:
            self.sandbox.succeeded()

    async def wait(self) -> None:
        """Until it is ready."""
        await self._ready.wait()

    async def watch(self, judge: Judge) -> None:
        """Make a trial judgment whenever there is doubt, until cancelled."""
        while True:
            await self._in_doubt.wait()
            try:
                await self._try(judge)
            except TirjudgeError as error:
                self._circuit_of(error).failed(error, is_certain=True)
                self.problem = logged(error)
                self._ready.clear()
                await asyncio.sleep(RETRY_S)
            else:
                self.problem = None
                self._in_doubt.clear()
                self._ready.set()

    async def _try(self, judge: Judge) -> None:
        if judge.sandbox is not None:
            await _try_sandbox(judge.sandbox)
            self.sandbox.succeeded()
        tools = "off" if judge.sandbox is None else "auto"
        await judge.judge(TRIAL.model_copy(update={"tools": tools}))
        self.engine.succeeded()

    def _circuit_of(self, error: TirjudgeError) -> Circuit:
        return self.sandbox if isinstance(error, SandboxUnavailable) else self.engine


async def _try_sandbox(sandbox: Sandbox) -> None:
    """Run a program.

    Raises:
        SandboxUnavailable: it cannot be run, or does not come back.
    """
    ends_at = asyncio.get_running_loop().time() + TRIAL_S
    try:
        result = await until(ends_at, sandbox.run(TRIAL_PROGRAM, bindings={}))
    except SandboxBusy:
        return
    if result is None:
        raise SandboxUnavailable(f"a program of one line did not come back within {TRIAL_S:.0f} s")
