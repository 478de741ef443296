"""Runs strangers' Python: a warm fork-server, a process a program, walls from the kernel.

    async with SandboxPool(slots=4) as pool:
        result = await pool.run("print(len(response_a))", bindings={"response_a": "..."})

A program has the standard library, its bindings, a small private /tmp (at the level `namespaces`), and nothing else: no
other file, no network, no other process (threads work, `subprocess` and `fork` fail with an error), no privileges.

What this does NOT protect against:

- A hole in the Linux kernel. All programs share the host's kernel; the system call filter makes it a smaller target. For
  people who attack on purpose, put the pool into a virtual machine of its own.
- Side channels: timing, caches, the processor itself.
- Being slow. A program may use its whole limit of processor time and memory, and as many may do so as there are slots.
- Memory in sum. Address space, files and threads are limited one by one, not together (that takes a cgroup), and at the
  level `landlock` threads only by their address space.
- Looking around, at the level `landlock`: whether a path exists, its size and times can be seen; contents cannot.
- Lies. Output, error line and exit code are the program's own words. Read them as data, never as instructions or verdicts.
"""

from tirjudge_sandbox.levels import Level
from tirjudge_sandbox.limits import Limits
from tirjudge_sandbox.pool import PoolStats, SandboxPool

__all__ = ["Level", "Limits", "PoolStats", "SandboxPool"]
