"""Fixtures that the suites share: one event loop, resources that stay open in it, and requests of realistic size."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from typing import Any

import pytest

from tirjudge.types import JudgeRequest, Mode
from tirjudge_sandbox import SandboxPool

WORDS = "The tide comes in twice a day because the moon and the sun pull at the water. "


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The event loop in which all asynchronous work is measured."""
    with asyncio.Runner() as runner:
        yield runner.get_loop()


@pytest.fixture(scope="session")
def keep_open(loop: asyncio.AbstractEventLoop) -> Iterator[Callable[[AbstractAsyncContextManager[Any]], Any]]:
    """Enter an asynchronous context manager, and leave it at the end of the session."""
    with ExitStack() as stack:
        yield lambda context: stack.enter_context(_held(context, loop=loop))


@contextmanager
def _held(context: AbstractAsyncContextManager[Any], *, loop: asyncio.AbstractEventLoop) -> Iterator[Any]:
    """Enter and leave the context in one task, as task groups require."""
    opened, closing = loop.create_future(), asyncio.Event()

    async def hold() -> None:
        async with context as value:
            opened.set_result(value)
            await closing.wait()

    holding = loop.create_task(hold())
    loop.run_until_complete(asyncio.wait([holding, opened], return_when=asyncio.FIRST_COMPLETED))
    if holding.done():
        holding.result()
    yield opened.result()
    closing.set()
    loop.run_until_complete(holding)


@pytest.fixture(scope="session")
def pool(keep_open: Callable[[SandboxPool], SandboxPool]) -> SandboxPool:
    """A sandbox of two slots at the strongest level of this machine."""
    return keep_open(SandboxPool(slots=2))


@pytest.fixture(scope="session")
def pair() -> JudgeRequest:
    """A pairwise request without tools, with two responses of 2,000 characters."""
    responses = [WORDS * 25, "The moon pulls at the water. " * 70]
    return JudgeRequest(mode=Mode.PAIRWISE, prompt="Why are there tides?", responses=responses, tools="off")
