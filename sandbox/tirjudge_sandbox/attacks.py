"""A few attacks that `doctor` runs for real: each prints BREACH only if it got through.

They are a sample that takes well under a second, to show on this very machine that the walls stand; the tests hold more.
"""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tirjudge.types import Outcome
from tirjudge_sandbox.limits import Limits
from tirjudge_sandbox.pool import SandboxPool

ATTACK_LIMITS = Limits(cpu_s=1.0, wall_s=10.0, memory_mb=128)
"""For the pool that the attacks are run in: small, so that those which use things up are done soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxAttack:
    name: str
    """What is tried, in words."""
    code: str
    """Finds `path`, `pid` and `port` of things on the host; any exception means that it was held off."""
    ends: frozenset[Outcome] = frozenset({Outcome.OK, Outcome.ERROR})
    """How it may end. What may not happen at all is that it prints BREACH."""


_HELD_BY_LIMITS = frozenset({Outcome.OK, Outcome.ERROR, Outcome.OOM, Outcome.TIMEOUT})

_SOCKETS = """
import ctypes, socket, threading
threading.stack_size(65536)
own, kept = ctypes.CDLL(None).syscall, []
def hold():
    own(436, 64, 70, 2)
    try:
        while True:
            kept.append(socket.socketpair())
    except OSError: pass
threads = [threading.Thread(target=hold) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
if len(kept) > 64: print("BREACH", len(kept))
"""

_THREADS = """
import threading, time
threading.stack_size(32768)
num = 0
try:
    while num < 1000:
        threading.Thread(target=time.sleep, args=(0.2,)).start()
        num += 1
except RuntimeError: pass
if num >= 200: print("BREACH", num)
"""

ATTACKS = (
    SandboxAttack(name="read a file of the host", code="print('BREACH', open(path).read())"),
    SandboxAttack(name="read the password file", code="print('BREACH', open('/etc/passwd').read(9))"),
    SandboxAttack(name="read the server's environment", code="print('BREACH', open(f'/proc/{pid}/environ').read(9))"),
    SandboxAttack(name="write outside its own directory", code="open('/usr/planted', 'w'); print('BREACH')"),
    SandboxAttack(name="change the interpreter", code="import os; open(os.__file__, 'a'); print('BREACH')"),
    SandboxAttack(
        name="connect to a port of the host",
        code="import socket; socket.create_connection(('127.0.0.1', int(port)), 1); print('BREACH')",
    ),
    SandboxAttack(
        name="signal a process of the host",  # whose number may also be the program's own, in a pid namespace
        code="import os; os.getpid() == int(pid) or os.kill(int(pid), 0) or print('BREACH')",
    ),
    SandboxAttack(
        name="execute a file",
        code="import os, sys; os.execv('/proc/self/exe', [sys.executable, '-c', 'print(\"BREACH\")'])",
    ),
    SandboxAttack(name="become root", code="import os; os.setuid(0); print('BREACH')"),
    SandboxAttack(
        name="mount a file system",
        code="import ctypes\nif ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0: print('BREACH')",
    ),
    SandboxAttack(
        name="a new user namespace",
        code="import ctypes\nif ctypes.CDLL(None).unshare(0x10000000) == 0: print('BREACH')",
    ),
    SandboxAttack(
        name="trace another process",
        code="import ctypes\nif ctypes.CDLL(None).ptrace(16, int(pid), 0, 0) == 0: print('BREACH')",
    ),
    SandboxAttack(
        name="take more memory than it may",
        code="kept = bytearray(1 << 30); kept[::4096] = b'x' * len(kept[::4096]); print('BREACH')",
        ends=frozenset({Outcome.OOM}),
    ),
    SandboxAttack(name="run for ever", code="while True: pass", ends=frozenset({Outcome.TIMEOUT})),
    SandboxAttack(
        name="start a hundred processes",
        code="import os, time\nfor _ in range(100):\n    if not os.fork(): time.sleep(60)\nprint('BREACH')",
        ends=frozenset({Outcome.ERROR, Outcome.TIMEOUT}),  # what a slow machine has forked by then is killed
    ),
    SandboxAttack(
        name="a table of descriptors of a thread's own",  # each would hold as many sockets again
        code="import ctypes\nif ctypes.CDLL(None).syscall(436, 60, 64, 2) == 0: print('BREACH')",
    ),
    SandboxAttack(name="hold memory in sockets of many tables", code=_SOCKETS, ends=_HELD_BY_LIMITS),
    SandboxAttack(name="start a thousand threads", code=_THREADS, ends=_HELD_BY_LIMITS),
    SandboxAttack(
        name="print without end",
        code="while True: print('x' * 100_000)",
        ends=frozenset({Outcome.OUTPUT_LIMIT, Outcome.ERROR, Outcome.TIMEOUT}),
    ),
)


async def problem_with(attack: SandboxAttack, *, pool: SandboxPool) -> str:
    """What the attack got through, or how else it ended than it may; empty if it was held off."""
    async with _targets() as bindings:
        result = await pool.run(attack.code, bindings=bindings)
    if "BREACH" in result.stdout:
        return f"got through: {result.stdout.strip()[:100]}"
    return "" if result.outcome in attack.ends else f"ended as {result.outcome}: {result.error}"


@asynccontextmanager
async def _targets() -> AsyncIterator[dict[str, str]]:
    """Something of the host for an attack to reach: a file that everybody may read, a port, this process."""
    with tempfile.NamedTemporaryFile("w") as file, socket.create_server(("127.0.0.1", 0)) as server:
        os.chmod(file.name, 0o644)
        await asyncio.to_thread(file.write, "secret")
        file.flush()
        yield {"path": file.name, "pid": str(os.getpid()), "port": str(server.getsockname()[1])}
