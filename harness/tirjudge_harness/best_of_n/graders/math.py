"""Grade mathematical answers of any form with math-verify, in worker processes.

A response can make a computer algebra system loop forever, use up all memory, or crash. So worker
processes parse the responses and compare the answers, each with a time limit. A worker that exceeds the limit is killed and
replaced. An answer that cannot be parsed or compared in time counts as wrong, as in math-verify itself;
`detail["problem"]` is the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from tirjudge_harness.best_of_n.graders.grade import Grade, GraderUnavailable, read_facts, require

_WORKER = "tirjudge_harness.best_of_n.graders.math_worker"
_START_S = 120.0
_LINE_BYTES = 1 << 20
_ENDED = (BrokenPipeError, ConnectionResetError, asyncio.IncompleteReadError)


class _Facts(BaseModel):
    model_config = ConfigDict(extra="ignore")

    answer: Annotated[str, Field(coerce_numbers_to_str=True, min_length=1)]


class _NotAnswered(Exception):
    """A worker failed, or did not respond in time. The message is the reason."""


class MathGrader:
    """Facts: `answer`, in LaTeX or plain text. Votes for equivalent answers are added up.

    async with MathGrader(workers=2) as grader:
        grades = await grader.grade([r"It is \\boxed{0.5}."], facts={"answer": r"\\frac{1}{2}"})
    """

    def __init__(self, *, workers: int = 2, timeout_s: float = 20.0) -> None:
        """Create a grader. Each worker process is started on its first request.

        Args:
            workers: number of worker processes; each needs about 200 MB.
            timeout_s: wall-clock limit for parsing one response, and for comparing two answers, in seconds.

        Raises:
            ValueError: `workers` is less than 1, or `timeout_s` is not positive.
            InputError: math-verify is not installed.
        """
        require("math_verify")
        if workers < 1:
            raise ValueError(f"workers: expected at least 1, got {workers}")
        if not timeout_s > 0:
            raise ValueError(f"timeout_s: expected a positive number, got {timeout_s}")
        self._workers = [_Worker(timeout_s=timeout_s) for _ in range(workers)]
        self._idle: asyncio.LifoQueue[_Worker] = asyncio.LifoQueue()
        for worker in self._workers:
            self._idle.put_nowait(worker)

    async def __aenter__(self) -> MathGrader:
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self._workers:
            await worker.stop()

    async def grade(self, responses: Sequence[str], *, facts: Mapping[str, Any]) -> list[Grade]:
        gold = read_facts(_Facts, facts).answer.strip()
        answers = await asyncio.gather(*(self._final_answer(response) for response in responses))
        texts = list(dict.fromkeys(text for text, _ in answers if text is not None))
        compared = await asyncio.gather(*(self._compare(text, gold=gold) for text in texts))
        verdicts = dict(zip(texts, compared, strict=True))
        representatives = await self._representatives(verdicts)
        grades = []
        for text, problem in answers:
            if text is None:
                grades.append(Grade(correct=False, detail=_detail(problem)))
            else:
                is_right, problem = verdicts[text]
                grades.append(Grade(correct=is_right, answer=representatives[text], detail=_detail(problem)))
        return grades

    async def _final_answer(self, response: str) -> tuple[str | None, str | None]:
        """Return the final answer and the reason why it could not be read; both None if the response has no answer."""
        try:
            return (await self._ask({"response": response}))["answer"], None
        except _NotAnswered as error:
            return None, str(error)

    async def _compare(self, text: str, *, gold: str) -> tuple[bool, str | None]:
        """Return whether an answer equals the gold answer, and the reason if the two could not be compared."""
        if text == gold:
            return True, None
        try:
            return (await self._ask({"gold": gold, "answer": text}))["same"], None
        except _NotAnswered as error:
            return False, str(error)

    async def _representatives(self, verdicts: Mapping[str, tuple[bool, str | None]]) -> dict[str, str]:
        """Map each answer to the first equivalent answer.

        All right answers are equivalent. An answer that could not be compared is equivalent to itself only.
        """
        first_of: dict[str, str] = {}
        for text, (is_right, problem) in verdicts.items():
            firsts = dict.fromkeys(first for first in first_of.values() if verdicts[first] == (is_right, None))
            equivalent = None if problem else await self._equivalent(text, firsts=list(firsts), are_right=is_right)
            first_of[text] = equivalent or text
        return first_of

    async def _equivalent(self, text: str, *, firsts: Sequence[str], are_right: bool) -> str | None:
        for first in firsts:
            if are_right or (await self._compare(text, gold=first))[0]:
                return first
        return None

    async def _ask(self, question: dict[str, str]) -> dict[str, Any]:
        worker = await self._idle.get()
        try:
            return await worker.ask(question)
        finally:
            self._idle.put_nowait(worker)


class _Worker:
    """One worker process. It is started on its first request."""

    def __init__(self, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._process: Process | None = None

    async def ask(self, question: dict[str, str]) -> dict[str, Any]:
        """Send a request to the process and return its response.

        Raises:
            _NotAnswered: the process did not answer in time, or ended. The next question starts a new process.
            GraderUnavailable: the process cannot be started.
        """
        try:
            if self._process is None:
                await self._start()
            async with asyncio.timeout(self._timeout_s):
                return await self._exchange(question)
        except TimeoutError as error:
            await self.stop()
            raise _NotAnswered(f"TimeLimit: not done after {self._timeout_s:g} s") from error
        except _ENDED as error:
            await self.stop()
            raise _NotAnswered("Crash: the process that compares answers ended") from error
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", _WORKER), stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=_LINE_BYTES
        )
        try:
            async with asyncio.timeout(_START_S):
                await self._line()
        except (TimeoutError, *_ENDED) as error:
            raise GraderUnavailable(
                f"the grader's process did not start; run `python -m {_WORKER}` to see why"
            ) from error

    async def _exchange(self, question: dict[str, str]) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        await self._process.stdin.drain()
        return json.loads(await self._line())

    async def _line(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        return await self._process.stdout.readuntil(b"\n")

    async def stop(self) -> None:
        """Kill the process, if it was started, and wait for its end."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _detail(problem: str | None) -> dict[str, Any]:
    return {} if problem is None else {"problem": problem}
