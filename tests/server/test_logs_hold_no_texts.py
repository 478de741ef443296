"""Logs never contain text from requests, even if a request is invalid or fails."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from tests.server.bodies import BODIES
from tests.server.speaking import IMPATIENT, service_of
from tests.server.test_dialect_bodies import places
from tests.servers import ServerProcess
from tests.tiers import sampled
from tirjudge.errors import EngineUnavailable, SandboxUnavailable, logged
from tirjudge_server.app import create_app
from tirjudge_server.telemetry.logs import JsonLines
from tirjudge_web.tracebacks import Lines, frames_of

MARK = "swordfish"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """Captures the log at the level `debug`, as text and as JSON."""
    stream = io.StringIO()
    root = logging.getLogger()
    level = root.level
    handlers = [logging.StreamHandler(stream), logging.StreamHandler(stream)]
    for handler, formatter in zip(handlers, (Lines(), JsonLines()), strict=True):
        handler.setFormatter(formatter)
        handler.addFilter(lambda record: record.name != "httpx2")  # the client of these tests
        root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.setLevel(level)
    for handler in handlers:
        root.removeHandler(handler)


VALUES = (MARK, [MARK], {MARK: MARK}, f"{MARK}\0\ud800", f"[[{MARK}]] {{{{item.{MARK}}}}}")


def marked(body: Any, *, turns: Iterable[int] = range(len(VALUES))) -> Iterator[bytes]:
    """Yield copies of a body, each with the mark in one place, and bodies that are not JSON.

    Args:
        body: A valid body.
        turns: Which of `VALUES` to put in the first place; the next place gets the next values.
    """
    for number, path in enumerate(places(body)):
        for turn in turns:
            copy = json.loads(json.dumps(body))
            inner = copy
            for step in path[:-1]:
                inner = inner[step]
            inner[path[-1]] = VALUES[(number + turn) % len(VALUES)]
            yield json.dumps(copy).encode()
    yield json.dumps({**body, MARK: MARK} if isinstance(body, dict) else [MARK]).encode()
    yield f'{{"{MARK}": {MARK}'.encode()
    yield f'"{MARK}'.encode() + b"\xff"


in_one_loop = pytest.mark.asyncio(loop_scope="module")
"""Runs a test in the event loop of the server that the tests of this module share."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a server with all endpoints but those of records. Its model writes the mark."""
    app = create_app(service_of(lambda sequence: MARK), files=tmp_path_factory.mktemp("files"), settings=IMPATIENT)
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as connected:
        yield connected
        path, body = BODIES["judge"]
        assert (await connected.post(path, json=body)).status_code == 200, "the server no longer judges"


class Broken(ValueError):
    """An internal error whose message quotes a request."""


@pytest.mark.parametrize(
    "turns", [[0], pytest.param(range(1, len(VALUES)), marks=pytest.mark.slow)], ids=["some", "others"]
)
@pytest.mark.parametrize("name", sampled(BODIES))
@in_one_loop
async def test_invalid_requests_are_not_quoted_in_logs(
    client: httpx2.AsyncClient,
    written: io.StringIO,
    caplog: pytest.LogCaptureFixture,
    name: str,
    turns: Sequence[int],
) -> None:
    path, body = BODIES[name]
    headers = {"idempotency-key": f"{MARK} {name} {turns[0]}", "authorization": f"Bearer {MARK}"}
    for content in marked(body, turns=turns):
        await client.post(path, content=content, headers=headers)
    for url in (f"/{MARK}", f"{path}?{MARK}={MARK}", f"/v1/files/{MARK}", f"/v1/files?after={MARK}&limit={MARK}"):
        await client.get(url)
        await client.post(url, content=b"{}")
    assert MARK not in written.getvalue()
    ours = [record for record in caplog.records if record.name != "httpx2"]
    assert MARK not in str([(record.getMessage(), record.args, record.exc_info, record.exc_text) for record in ours])


FAULTS = {
    "internal error": Broken(f"cannot read {MARK}"),
    "KeyError": KeyError(MARK),
    "UnicodeError": UnicodeDecodeError("utf-8", MARK.encode(), 0, 1, MARK),
    "engine failure": EngineUnavailable(f"HTTP 500: cannot read {MARK}").logged_as("HTTP 500"),
    "sandbox failure": SandboxUnavailable(f"lost {MARK}").logged_as("lost a program"),
}


@pytest.mark.parametrize("error", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("name", ["judge", "reward", "rerank", "openrlhf", "slime", "nemo_gym", "batch", "decisions"])
async def test_internal_errors_do_not_quote_requests_in_logs(
    connect: Any, written: io.StringIO, caplog: pytest.LogCaptureFixture, name: str, error: Exception
) -> None:
    def fail(sequence: str) -> str:
        raise error

    path, body = BODIES[name]
    async with connect(create_app(service_of(fail), settings=IMPATIENT)) as client:
        await client.post(path, json=body)
        assert MARK not in (await client.get("/ready")).text
    assert MARK not in written.getvalue()
    assert MARK not in "".join(record.getMessage() for record in caplog.records if record.name.startswith("tirjudge"))


def test_a_traceback_has_locations_and_types_but_no_messages(written: io.StringIO) -> None:
    try:
        try:
            int(f"{MARK}")
        except ValueError as error:
            raise Broken(MARK) from error
    except Broken as error:
        logging.getLogger(__name__).exception("a request failed")
        said = frames_of(error)
    assert "builtins.ValueError" in said
    assert said.endswith("Broken")
    assert said.count(Path(__file__).name) == 2
    assert "Broken" in written.getvalue()
    for text in (said, written.getvalue()):
        assert MARK not in text.replace('int(f"{MARK}")', "").replace("raise Broken(MARK)", "")


def test_an_exception_group_is_logged_with_its_exceptions() -> None:
    said = frames_of(ExceptionGroup(MARK, [KeyError(MARK), ExceptionGroup(MARK, [ValueError(MARK)])]))
    assert MARK not in said
    assert {"builtins.KeyError", "builtins.ValueError"} <= set(said.splitlines())


def test_logged_errors_use_the_safe_message() -> None:
    assert logged(EngineUnavailable("the URL cannot be reached")) == "the URL cannot be reached"
    assert logged(EngineUnavailable(MARK).logged_as("HTTP 500")) == "HTTP 500"
    assert logged(KeyError(MARK)) == "KeyError"


@pytest.mark.slow
@pytest.mark.parametrize("style", ["text", "json"])
def test_a_real_server_quotes_no_request_on_stderr(
    start: Callable[..., ServerProcess], random_checkpoint: Path, tmp_path: Path, style: str
) -> None:
    options = ["--model", str(random_checkpoint), "--log-level", "debug", "--log-format", style, "--slots", "1"]
    options += ["--files", str(tmp_path / "files"), "--records", str(tmp_path / "records.db")]
    server = start("serve", *options)
    with httpx2.Client(base_url=server.url, timeout=60) as client:
        for name in ("judge", "chat", "multi", "slime", "batches"):
            path, body = BODIES[name]
            for content in list(marked(body))[::3]:
                client.post(path, content=content, headers={"idempotency-key": f"{MARK}{len(content)}"})
        client.post("/v1/files", data={"purpose": MARK}, files={MARK: (MARK, MARK.encode())})
        client.get(f"/v1/judgments?after={MARK}&limit={MARK}")
    _, errors = server.stop()
    assert "tirjudge_server" in errors
    assert MARK not in errors
