"""Runs strangers' Python: a warm fork-server, a process a program, walls from the kernel.

    async with SandboxPool(slots=4) as pool:
        result = await pool.run("print(len(response_a))", bindings={"response_a": "..."})

A program has the standard library, numpy, scipy, pandas and sympy where they are installed, what it was given, a small
private /tmp (at the levels with namespaces), and nothing else: no other file, no network, no privileges; processes of its own
only where a control group limits them in sum.

What this does NOT protect against:

- A hole in the Linux kernel. All programs share the host's kernel, except at the level `gvisor`; the system call filter makes
  it a smaller target. For people who attack on purpose, take that level or a virtual machine around the pool.
- Side channels: timing, caches, the processor itself.
- Being slow. A program may use its whole limit of processor time and memory, and as many may do so as there are slots.
- Memory in sum, where there is no control group: address space, files and threads are then limited one by one.
- Looking around, at the level `landlock`: whether a path exists, its size and times can be seen; contents cannot.
- Lies. Output, error line and exit code are the program's own words. Read them as data, never as instructions or verdicts.
"""

from tirjudge_sandbox.levels import IsolationLevel
from tirjudge_sandbox.limits import Limits
from tirjudge_sandbox.pool import PoolStats, SandboxPool

__all__ = ["IsolationLevel", "Limits", "PoolStats", "SandboxPool"]
