"""Attack programs that `tirjudge sandbox doctor` runs: each prints BREACH only if the attack succeeded.

They are a quick sample that checks the isolation of this machine. The tests contain more attacks.
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
"""Limits of the pool that runs the attacks. They are small, so that attacks that exhaust a resource end soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxAttack:
    """An attack program, and the outcomes that count as blocked."""

    name: str
    """Short description of the attack."""
    code: str
    """Python source. The variables `path`, `pid` and `port` name a file, a process and a TCP port of the host. An
    exception means that the attack was blocked."""
    ends: frozenset[Outcome] = frozenset({Outcome.OK, Outcome.ERROR})
    """Outcomes that count as blocked, provided that the output does not contain BREACH."""


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
    SandboxAttack(name="write outside the working directory", code="open('/usr/planted', 'w'); print('BREACH')"),
    SandboxAttack(name="change the interpreter", code="import os; open(os.__file__, 'a'); print('BREACH')"),
    SandboxAttack(
        name="connect to a port of the host",
        code="import socket; socket.create_connection(('127.0.0.1', int(port)), 1); print('BREACH')",
    ),
    SandboxAttack(
        name="signal a process of the host",  # in a pid namespace, the program itself may have the same number
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
        name="exceed the memory limit",
        code="kept = bytearray(1 << 30); kept[::4096] = b'x' * len(kept[::4096]); print('BREACH')",
        ends=frozenset({Outcome.OOM}),
    ),
    SandboxAttack(name="loop without end", code="while True: pass", ends=frozenset({Outcome.TIMEOUT})),
    SandboxAttack(
        name="start a hundred processes",
        code="import os, time\nfor _ in range(100):\n    if not os.fork(): time.sleep(60)\nprint('BREACH')",
        ends=frozenset({Outcome.ERROR, Outcome.TIMEOUT}),  # on a slow machine, the time limit ends the forking
    ),
    SandboxAttack(
        name="unshare the descriptor table of a thread",  # each table could hold the full number of sockets again
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
    """Run an attack. Return an empty string if it was blocked, else a description of the breach or unexpected
    outcome."""
    async with _targets() as bindings:
        result = await pool.run(attack.code, bindings=bindings)
    if "BREACH" in result.stdout:
        return f"got through: {result.stdout.strip()[:100]}"
    return "" if result.outcome in attack.ends else f"ended as {result.outcome}: {result.error}"


@asynccontextmanager
async def _targets() -> AsyncIterator[dict[str, str]]:
    """Create targets on the host for the attacks: a world-readable file, a TCP port, and this process's pid."""
    with tempfile.NamedTemporaryFile("w") as file, socket.create_server(("127.0.0.1", 0)) as server:
        os.chmod(file.name, 0o644)
        await asyncio.to_thread(file.write, "secret")
        file.flush()
        yield {"path": file.name, "pid": str(os.getpid()), "port": str(server.getsockname()[1])}
