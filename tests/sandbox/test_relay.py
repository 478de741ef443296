"""Function calls through the relay of containers, whose process runs here without a container."""

import asyncio
import contextlib
import os
import signal
import socket
import struct
import subprocess
import threading

import pytest
import pytest_asyncio

from tirjudge.tools.functions import Budget, CallAccount, Offer, function
from tirjudge.types import Outcome
from tirjudge_sandbox import Limits, SandboxPool, containers
from tirjudge_sandbox.candidates import FUNCTIONS
from tirjudge_sandbox.containers import ContainerServer
from tirjudge_sandbox.fork_server import base_python

STDOUT, STDERR = 1, 2


@function
async def double(number: int) -> int:
    """Twice a number."""
    return 2 * number


@function
async def nap(seconds: float) -> str:
    """Waits."""
    await asyncio.sleep(seconds)
    return "rested"


class Relayed:
    """The process that a container would run, with its streams in one socket as the Docker daemon sends them."""

    def __init__(self, folder):
        bootstrap = containers._BOOTSTRAP.replace("/tmp/tirjudge.zip", f"{folder}/tirjudge.zip")
        command = [base_python(), "-P", "-s", "-S", "-B", "-X", "utf8", "-c", bootstrap]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, cwd="/", env={}, start_new_session=True
        )
        self.streams, ours = socket.socketpair()
        self.streams.setblocking(False)
        self.threads = [
            threading.Thread(target=self.feed, args=(ours,), daemon=True),
            threading.Thread(target=self.drain, args=(self.process.stdout, STDOUT, ours), daemon=True),
            threading.Thread(target=self.drain, args=(self.process.stderr, STDERR, ours), daemon=True),
        ]
        for thread in self.threads:
            thread.start()
        self.ours = ours

    def feed(self, ours):
        with contextlib.suppress(OSError):
            while part := ours.recv(1 << 16):
                self.process.stdin.write(part)
                self.process.stdin.flush()

    def drain(self, stream, kind, ours):
        with contextlib.suppress(OSError):
            while part := stream.read1(1 << 16):
                ours.sendall(struct.pack(">BxxxI", kind, len(part)) + part)

    def remove(self):
        os.killpg(self.process.pid, signal.SIGKILL)  # in a container, the end of its first process ends the others
        self.process.wait()
        with contextlib.suppress(OSError):
            self.ours.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr, self.ours):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


class RelayedPool(SandboxPool):
    """A pool whose fork servers are behind relays."""

    folder = ""

    async def _new_server(self, level, preset):
        container = await asyncio.to_thread(Relayed, self.folder)
        reader, writer = await asyncio.open_unix_connection(sock=container.streams)
        server = ContainerServer(container, reader, writer, output_bytes=self.max_limits.output_bytes)  # type: ignore[arg-type]
        await server.greet({"level": level, "preset": preset, "packages": []})
        return server


@pytest_asyncio.fixture(name="relayed", loop_scope="session")
async def relayed_pool(tmp_path):
    RelayedPool.folder = tmp_path
    async with RelayedPool(slots=1, limits=Limits(cpu_s=2, wall_s=2), level="landlock") as pool:
        yield pool


async def test_calls_and_candidates_work_through_a_relay(relayed):
    code = 'r = run("def f(n): return n + 1", call="f", args=[double(20)])\nprint(r.value, run("print(input())", "x").stdout)'
    result = await relayed.run(code, offer=Offer(functions=[*FUNCTIONS, double]))
    assert result.stdout == "41 x\n\n", result.error
    assert [call.function for call in result.calls] == ["double", "run", "run"]


@pytest.mark.slow
async def test_one_slot_behind_a_relay_serves_eight_programs_with_candidates(relayed):
    works = [relayed.run("print(run('print(7)').stdout)", offer=Offer(functions=FUNCTIONS)) for _ in range(8)]
    assert {result.stdout for result in await asyncio.gather(*works)} == {"7\n\n"}


@pytest.mark.slow
async def test_the_wall_time_stops_during_calls_through_a_relay(relayed):
    account = CallAccount(Budget(seconds=30))
    result = await relayed.run("print(nap(2.5))", offer=Offer(functions=[nap], account=account))
    assert (result.outcome, result.stdout) == (Outcome.OK, "rested\n")
    assert result.wall_s < 2


@pytest.mark.slow
async def test_executed_text_is_reported_through_a_relay(relayed):
    offer = Offer(watched=("response",))
    result = await relayed.run("exec(response)", bindings={"response": "print('forged')"}, offer=offer)
    assert result.in_process == ("exec",)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"\0\0\0\3{]}", b"\0\0\0\2{}", b"\xff\xff\xff\xff", b"\0\0\0\1x" * 3])
async def test_garbage_closes_the_channel_through_a_relay_and_harms_no_neighbour(relayed, sent):
    code = f"import os\nos.write(4, {sent!r})\ntry:\n    double(1)\nexcept ToolError as error:\n    print('closed')"
    offer = Offer(functions=[double])
    result = await relayed.run(code, offer=offer)
    assert (result.outcome, result.stdout, result.calls) == (Outcome.OK, "closed\n", ()), result.error
    assert (await relayed.run("print(double(4))", offer=offer)).stdout == "8\n"
