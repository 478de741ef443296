"""Run untrusted Python programs: a warm fork server, one process per program, isolation enforced by the Linux kernel.

    async with SandboxPool(slots=4) as pool:
        result = await pool.run("print(len(response_a))", bindings={"response_a": "..."})

A program can use the standard library, the inputs of its request, and numpy, scipy, pandas and sympy where they are
installed. At the levels with namespaces it also has a small private /tmp. It has no other files, no network and no
privileges. It may start processes only at the level with control groups, which limit their total use.

The sandbox does NOT protect against:

- Vulnerabilities in the Linux kernel. All programs share the host's kernel, except at the level `gvisor`. The seccomp
  filter reduces the attack surface. Against deliberate attackers, use `gvisor` or run the pool in a virtual machine.
- Side channels: timing, caches, the processor.
- Slow programs. Each program may use its full CPU and memory limits, in every slot at the same time.
- Total memory use, at levels without control groups. Address space, files and threads are then limited one by one.
- Looking up paths, at the level `landlock`. A program can see whether a path exists, its size and its times, but no
  contents.
- False output. The program controls its output, error line and exit code. Treat them as data, never as instructions or
  verdicts.
"""

from tirjudge_sandbox.levels import IsolationLevel
from tirjudge_sandbox.limits import Limits
from tirjudge_sandbox.pool import PoolStats, SandboxPool

__all__ = ["IsolationLevel", "Limits", "PoolStats", "SandboxPool"]
