"""What a judgment does below, told while it does it: every turn of the engine, and every program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

from tirjudge.judge import Judge
from tirjudge.loop import Bindings, Engine, Sandbox, Tokenizer
from tirjudge.types import Completion, ExecResult, Sampling


class Probe(Protocol):
    """Somebody who is told. What is opened is given the result, if there is one, and closed afterwards."""

    def generating(
        self, token_ids: Sequence[int], *, sampling: Sampling, session: str
    ) -> AbstractContextManager[Callable[[Completion], None]]:
        """A turn is being written."""
        ...

    def running(self, code: str) -> AbstractContextManager[Callable[[ExecResult], None]]:
        """A program runs, or waits for it."""
        ...


def instrument(judge: Judge, probe: Probe) -> Judge:
    """A judge that does the same, with somebody told."""
    sandbox = None if judge.sandbox is None else _ProbedSandbox(judge.sandbox, probe)
    return replace(judge, engine=_ProbedEngine(judge.engine, probe), sandbox=sandbox)


class _ProbedEngine:
    def __init__(self, engine: Engine, probe: Probe) -> None:
        self._engine = engine
        self._probe = probe

    @property
    def tokenizer(self) -> Tokenizer:
        return self._engine.tokenizer

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return self._engine.eos_token_ids

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        with self._probe.generating(token_ids, sampling=sampling, session=session) as tell:
            completion = await self._engine.generate(token_ids, sampling=sampling, session=session)
            tell(completion)
            return completion


class _ProbedSandbox:
    def __init__(self, sandbox: Sandbox, probe: Probe) -> None:
        self._sandbox = sandbox
        self._probe = probe

    async def run(self, code: str, *, bindings: Bindings) -> ExecResult:
        with self._probe.running(code) as tell:
            result = await self._sandbox.run(code, bindings=bindings)
            tell(result)
            return result
