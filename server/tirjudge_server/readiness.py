"""Readiness: a trial judgment at startup, and again after each failure of the engine or the sandbox.

Requests to a hosted model cost money and count towards a rate limit. There the trial is one short request, and the pause
between failing trials grows.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tirjudge.deadline import until
from tirjudge.errors import (
    DeadlineExceeded,
    EngineBusy,
    EngineUnavailable,
    SandboxBusy,
    SandboxUnavailable,
    TirjudgeError,
    TurnRefused,
    logged,
)
from tirjudge.http.exchange import EngineRefused
from tirjudge.judge import Judge
from tirjudge.tools.python import Sandbox
from tirjudge.types import MODEL_MODES, JudgeRequest, Judgment, Mode
from tirjudge_server.circuit import Circuit

TRIAL_S = 60.0
"""Maximum seconds of a trial judgment, and of its trial program."""

TRIAL = JudgeRequest(
    mode=Mode.PAIRWISE,
    prompt="Write one sentence. Use no commas.",
    responses=["It rains.", "Yes, it rains."],
    deadline_s=TRIAL_S,
)
"""The trial is a complete judgment, so it proves that the engine works."""

GUIDANCE = {"reference": "It rains.", "rubric": "The better sentence has no comma."}
"""Texts of the trial for formats that need them."""

TRIAL_PROGRAM = "print(1)"
"""The trial also runs this program, because the model may not write one."""

RETRY_S = 1.0
"""Seconds between two failing trials."""

MAX_DOUBLINGS = 8

MAX_RETRY_S = 30.0
"""Maximum seconds between two failing trials of an engine whose requests cost money. The pause doubles up to this."""


class Readiness:
    """Whether judgments can be made now. A trial decides: the first at startup, another after each server failure.

    Attributes:
        problem: why no judgment can be made; None: the server is ready.
        engine: the circuit breaker of the engine.
        sandbox: the circuit breaker of the sandbox.
    """

    def __init__(self) -> None:
        self.problem: str | None = "the trial judgment at startup is running"
        self.engine = Circuit("engine", error=EngineUnavailable)
        self.sandbox = Circuit("sandbox", error=SandboxUnavailable)
        self._in_doubt = asyncio.Event()
        self._in_doubt.set()
        self._ready = asyncio.Event()

    def check(self, request: JudgeRequest) -> None:
        """Check that no component that the request needs is known to be broken.

        Raises:
            EngineUnavailable, SandboxUnavailable: its circuit is open.
        """
        self.engine.check()
        if request.offers_tools:
            self.sandbox.check()

    def doubt(self, error: TirjudgeError) -> None:
        """Record the failure of a judgment, and request a trial.

        A busy component works, and so does an engine that refuses a single request. After a deadline, `problem` stays as it
        is until the trial has ended: the request may have been too large, or the engine hangs. Likewise after a refused
        turn: the trial shows whether the engine refuses every request.
        """
        if isinstance(error, SandboxBusy | EngineBusy) or (isinstance(error, EngineRefused) and error.is_about_request):
            return
        if not isinstance(error, DeadlineExceeded | TurnRefused):
            self._circuit_of(error).failed(error)
            self.problem = logged(error)
            self._ready.clear()
        self._in_doubt.set()

    def confirm(self, judgment: Judgment) -> None:
        """Record a successful judgment. Without rollouts and raw scores, it says nothing about the engine."""
        if not judgment.rollouts and judgment.raw_scores is None:
            return
        self.engine.succeeded()
        if judgment.usage.tool_calls:
            self.sandbox.succeeded()

    async def wait(self) -> None:
        """Wait until the server is ready."""
        await self._ready.wait()

    async def watch(self, judge: Judge) -> None:
        """Make a trial judgment whenever one is requested, until cancelled."""
        num_failures = 0
        while True:
            await self._in_doubt.wait()
            try:
                await self._try(judge)
            except TirjudgeError as error:
                self._circuit_of(error).failed(error, is_certain=not isinstance(error, EngineBusy))
                self.problem = logged(error)
                self._ready.clear()
                pause_s = min(MAX_RETRY_S, RETRY_S * 2**num_failures) if judge.engine.facts.checks else RETRY_S
                num_failures = min(num_failures + 1, MAX_DOUBLINGS)
                await asyncio.sleep(pause_s)
            else:
                num_failures = 0
                self.problem = None
                self._in_doubt.clear()
                self._ready.set()

    async def _try(self, judge: Judge) -> None:
        if judge.sandbox is not None:
            await _try_sandbox(judge.sandbox)
            self.sandbox.succeeded()
        if judge.engine.facts.checks:
            await judge.engine.check()
            self.engine.succeeded()
            return
        if judge.has_model:
            tools = "off" if judge.sandbox is None else "auto"
            # Without checks: they may need stores that only a request brings.
            await replace(judge, checks=None).judge(trial_for(judge).model_copy(update={"tools": tools}))
        self.engine.succeeded()

    def _circuit_of(self, error: TirjudgeError) -> Circuit:
        return self.sandbox if isinstance(error, SandboxUnavailable) else self.engine


def trial_for(judge: Judge) -> JudgeRequest:
    """Return the trial in the first mode that the format of the judge can show, with the texts that it needs."""
    modes = (TRIAL.mode, *(mode for mode in MODEL_MODES if mode is not TRIAL.mode))
    names = [[], *([name] for name in GUIDANCE), list(GUIDANCE)]
    trials = [
        TRIAL.model_copy(update={"mode": mode} | {name: GUIDANCE[name] for name in given})
        for mode in modes
        for given in names
    ]
    return next((trial for trial in trials if judge.format.traits.refusal(trial) is None), TRIAL)


async def _try_sandbox(sandbox: Sandbox) -> None:
    """Run the trial program.

    Raises:
        SandboxUnavailable: the program cannot be run, or does not end in time.
    """
    ends_at = asyncio.get_running_loop().time() + TRIAL_S
    try:
        result = await until(ends_at, sandbox.run(TRIAL_PROGRAM, bindings={}))
    except SandboxBusy:
        return
    if result is None:
        raise SandboxUnavailable(f"a one-line program did not end within {TRIAL_S:.0f} s")
