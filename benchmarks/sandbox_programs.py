"""Programs for the sandbox's measurements: attacks of our own, random programs, and mutations of either.

A case is an attack with what a safe end of it is. A file of cases holds one JSON object a line:

    {"id": ..., "category": ..., "code": ..., "expect": what a safe end is, in words, "probe": {...}}

where the keys of `probe` are those of `Probe`. A program prints BREACH where it got through. `@FILE@`, `@PID@`, `@PORT@`,
`@ABS@`, `@SECRET@` and `@TAG@` stand for canaries of the host (see `sandbox_host.py`).
"""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

ANY_END = ("ok", "error", "signal", "timeout", "oom")


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What a safe end of an attack is."""

    status: tuple[str, ...] = ANY_END
    """`signal` is the outcome `crash`; `output_limit` and `refused` count as `error`."""
    max_wall: float = 4.0
    """Seconds in the sandbox."""
    lacks: tuple[str, ...] = ("BREACH",)
    """Texts that may be nowhere in what comes back, from this program, its pair and the next ones."""
    has: tuple[str, ...] = ()
    """Texts that must be in what it printed."""
    error_has: tuple[str, ...] = ()
    exit_code: int | None = None
    """None: any."""
    max_bytes: int | None = None
    """Of what it printed, as UTF-8; None: any."""
    max_error: int | None = None
    """Characters of the error line; None: any."""
    then: str = ""
    """The next program, run on every slot; empty: only the runner's own look around."""
    then_has: tuple[str, ...] = ()
    then_skip_error: bool = False
    """Whether `then` may fail."""
    pair: str = ""
    """A program that runs at the same time; empty: none."""
    pair_lacks: tuple[str, ...] = ()
    repeat: int = 1
    distinct: bool = False
    """Whether no two of the repetitions may print the same."""
    host: tuple[str, ...] = ()
    """What to look at on the host; the runner always looks at all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    id: str
    category: str
    code: str
    expect: str = ""
    probe: Probe = field(default_factory=Probe)

    def filled(self, values: Mapping[str, str]) -> Case:
        """This case with the canaries' names in it."""

        def fill(text: str) -> str:
            for name, value in values.items():
                text = text.replace(f"@{name}@", value)
            return text

        changed: dict[str, Any] = {}
        for item in fields(Probe):
            value = getattr(self.probe, item.name)
            if isinstance(value, str):
                changed[item.name] = fill(value)
            elif isinstance(value, tuple):
                changed[item.name] = tuple(map(fill, value))
        return replace(self, code=fill(self.code), probe=replace(self.probe, **changed))


def load_cases(path: Path) -> list[Case]:
    """Raises ValueError for a line that is no case."""
    cases = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            cases.append(_case(json.loads(line)))
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
    return cases


def _case(given: dict[str, Any]) -> Case:
    probe: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in given["probe"].items()
    }
    texts = {name: given[name] for name in ("id", "category", "code")}
    return Case(**texts, expect=given.get("expect", ""), probe=Probe(**probe))


# ------------------------------------------------------------------------------------------------------- attacks of ours

_TRY = """
def attempt(name, action):
    try:
        print("BREACH", name, action())
    except BaseException as error:
        print("held", name, type(error).__name__)
"""


def _attack(id: str, code: str, *, tries: bool = False, **probe: Any) -> Case:
    return Case(id=id, category=id.split("-")[0], code=(_TRY if tries else "") + code, probe=Probe(**probe))


_KEEP = """
import ctypes, mmap, os, socket, threading, time
libc = ctypes.CDLL(None)
threading.stack_size(65536)
kept = []
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
def keep(thing):
    kept.append(thing)
    return thing
def bare_thread(flags):
    '''One that pauses for ever, with no stack of its own to speak of; x86-64.'''
    if not kept:
        text = keep(mmap.mmap(-1, 4096, PRIVATE, 7))
        text.write(bytes.fromhex("b8380000000f054885c07407c39090909090b8220000000f05ebf7"))
        kept.append(ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_long] * 5)(ctypes.addressof(ctypes.c_char.from_buffer(text))))
        stack = keep(mmap.mmap(-1, 8192, PRIVATE))
        kept.append(ctypes.addressof(ctypes.c_char.from_buffer(stack)) + 4096)
    return kept[1](flags, kept[3], 0, 0, 0)
"""

_SOCKETS = """
def fill():
    try:
        while True:
            for end in keep(socket.socketpair()):
                end.setblocking(False)
                try:
                    while True: end.send(bytes(1 << 16))
                except BlockingIOError: pass
    except OSError: pass
"""

ATTACKS = [
    _attack(
        "files-host",
        'for path in ("@FILE@", "/etc/passwd", "/etc/hostname", "/root/.bashrc", "/proc/1/environ", "/proc/self/maps"):\n'
        "    attempt(path, lambda: open(path).read(9))",
        tries=True,
        lacks=("BREACH", "@SECRET@"),
    ),
    _attack(
        "files-way-up",
        'attempt("up", lambda: open("../" * 30 + "@FILE@".lstrip("/")).read())\nimport os\n'
        "for descriptor in range(3, 64):\n"
        '    attempt(descriptor, lambda: os.open("..", os.O_RDONLY, dir_fd=descriptor))',
        tries=True,
    ),
    _attack(
        "files-plant",
        "import os, tempfile, sys\n"
        'for place in ["/", "/var/tmp", "/run", "/home", sys.prefix, os.path.dirname(os.__file__)]:\n'
        '    attempt(place, lambda: open(f"{place}/plant_@TAG@", "w").write("planted"))\n'
        'for place in (".", "/dev/shm"):\n'
        '    try: open(f"{place}/plant_@TAG@", "w").write("planted")\n    except OSError: pass',
        tries=True,
        then='import os\nfor place in (".", "/dev/shm"):\n'
        '    if os.path.exists(f"{place}/plant_@TAG@"): print("BREACH", place)',
        then_skip_error=True,
    ),
    _attack(
        "files-descriptors",
        "import os, stat\nfor descriptor in range(3, 4096):\n"
        "    try: print('BREACH', descriptor, oct(os.fstat(descriptor).st_mode))\n    except OSError: pass",
    ),
    _attack(
        "files-special",
        "import os, stat\n"
        'attempt("block", lambda: os.mknod("b", 0o600 | stat.S_IFBLK, os.makedev(8, 0)))\n'
        'attempt("link", lambda: os.link("@FILE@", "hard"))\n'
        'attempt("chroot", lambda: os.chroot("."))\n'
        'attempt("xattr", lambda: os.setxattr(os.__file__, "user.x", b"1"))',
        tries=True,
    ),
    _attack(
        "files-proc-self",
        "import os\n"
        'for name in ("mem", "environ", "root", "cwd", "exe", "ns/net", "attr/current", "oom_score_adj"):\n'
        '    attempt(name, lambda: os.open(f"/proc/self/{name}", os.O_RDWR))',
        tries=True,
    ),
    _attack(
        "network-connect",
        "import socket\nsocket.setdefaulttimeout(1)\n"
        'attempt("tcp", lambda: socket.create_connection(("127.0.0.1", @PORT@)))\n'
        'attempt("udp", lambda: socket.socket(2, 2).sendto(b"x", ("127.0.0.1", @PORT@)))\n'
        'attempt("abstract", lambda: socket.socket(1).connect("\\0@ABS@"))\n'
        'attempt("name", lambda: socket.getaddrinfo("example.org", 80))',
        tries=True,
    ),
    _attack(
        "network-pair-sends-on",
        "import socket\na, b = socket.socketpair()\n"
        'attempt("other receiver", lambda: a.sendto(b"x", "\\0@ABS@"))\n'
        'attempt("datagram pair", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", "\\0@ABS@"))',
        tries=True,
    ),
    _attack(
        "network-ring",
        "import ctypes\nlibc = ctypes.CDLL(None)\nparameters = ctypes.create_string_buffer(256)\n"
        "if libc.syscall(425, 8, parameters) >= 0: print('BREACH io_uring')",
    ),
    _attack(
        "process-signal-others",
        "import os\nfor pid in (1, @PID@, -1, os.getppid()):\n    if pid != os.getpid():\n"
        "        attempt(pid, lambda: os.kill(pid, 9))",
        tries=True,
        lacks=("BREACH @PID@",),
    ),
    _attack(
        "process-children",
        "import os, time\nstarted = 0\nfor _ in range(400):\n    try:\n        if os.fork() == 0:\n"
        "            time.sleep(60)\n            os._exit(0)\n        started += 1\n    except OSError: pass\n"
        "if started > 200: print('BREACH', started)\nprint(started)",
    ),
    _attack(
        "process-daemon",
        "import os, time\ntry:\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n"
        "            while True: time.sleep(1)\n        os._exit(0)\nexcept OSError as error: print(error)",
    ),
    _attack(
        "process-exec",
        "import os, subprocess\n"
        'attempt("shell", lambda: subprocess.run(["/bin/sh", "-c", "echo out"], check=True))\n'
        'attempt("exec", lambda: os.execv("/usr/bin/env", ["env"]))',
        tries=True,
    ),
    _attack(
        "process-privilege",
        "import os\nfor call in (os.setuid, os.setgid, os.seteuid):\n    was = os.getuid()\n"
        "    try:\n        call(0)\n        if was: print('BREACH', call)\n    except OSError: pass\n"
        'attempt("groups", lambda: os.setgroups([0]))\nattempt("nice", lambda: os.nice(-5))',
        tries=True,
    ),
    _attack(
        "process-namespaces",
        "import ctypes\nlibc = ctypes.CDLL(None)\nfor flag in (1 << 17, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30):\n"
        "    if libc.unshare(flag) == 0: print('BREACH', hex(flag))",
    ),
    _attack(
        "process-limits-of-others",
        "import resource, os\n"
        "for pid in {1, @PID@, os.getppid()} - {0, os.getpid()}:\n"
        "    attempt(pid, lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, 3)))\n"
        "hard = resource.getrlimit(resource.RLIMIT_CPU)[1]\n"
        'attempt("own", lambda: resource.setrlimit(resource.RLIMIT_CPU, (hard + 9, hard + 9)))',
        tries=True,
    ),
    _attack(
        "process-async-signal",
        "import fcntl, signal, socket, os\na, b = socket.socketpair()\n"
        'attempt("owner", lambda: fcntl.fcntl(a, fcntl.F_SETOWN, @PID@))\n'
        'attempt("signal", lambda: fcntl.fcntl(a, 10, signal.SIGKILL))',
        tries=True,
    ),
    _attack("process-segfault", "import ctypes\nctypes.string_at(1)", status=("signal",)),
    _attack("process-abort", "import os\nos.abort()", status=("signal", "error")),
    _attack(
        "process-stop",
        "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nprint('went on')",
        status=("ok", "error", "timeout", "signal"),
    ),
    _attack(
        "resource-memory", "kept = []\nwhile True: kept.append(bytearray(1 << 24))", status=("oom", "error", "timeout")
    ),
    _attack("resource-one-call", "print(9 ** 9 ** 9)", status=("timeout", "oom", "error", "signal")),
    _attack(
        "resource-threads",
        "import threading, time\nstarted = 0\ntry:\n    while started < 5000:\n"
        "        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n        started += 1\n"
        "except (RuntimeError, MemoryError): pass\nif started > 2000: print('BREACH', started)\nimport os\nos._exit(0)",
    ),
    _attack(
        "resource-scratch",
        "written = 0\ntry:\n    for number in range(4000):\n        with open(f'scratch_@TAG@_{number}', 'wb') as file:\n"
        "            written += file.write(bytes(1 << 20))\nexcept OSError as error: print(error)\n"
        "if written > 1 << 30: print('BREACH', written)",
    ),
    _attack(
        "resource-memory-files",
        "import os\nheld = 0\ntry:\n    for _ in range(64):\n        descriptor = os.memfd_create('m')\n"
        "        for _ in range(64): held += os.write(descriptor, bytes(1 << 20))\n"
        "except OSError as error: print(error)\nif held > 1 << 30: print('BREACH', held)",
    ),
    _attack("resource-shared-memory", _KEEP + "while True: keep(mmap.mmap(-1, 1 << 24)).write(bytes(1 << 24))"),
    _attack(
        "resource-shrunk-mappings",
        _KEEP + "for _ in range(30):\n    area = keep(mmap.mmap(-1, 20 << 20))\n    area.write(bytes(20 << 20))\n"
        "    area.resize(4096)\nprint('BREACH', len(kept))",
    ),
    _attack(
        "resource-lent-pages",
        "import os, socket\na, b = socket.socketpair()\nos.write(1, bytes(8192))\nos.sendfile(a.fileno(), 1, 4095, 2)\n"
        "os.ftruncate(1, 0)\nos.lseek(1, 0, 0)\nprint('BREACH')",
    ),
    _attack("resource-sockets", _KEEP + _SOCKETS + "fill()\ntime.sleep(1)"),
    _attack(
        "resource-own-tables",
        _KEEP
        + _SOCKETS
        + "own = []\ndef alone():\n    if libc.syscall(436, 64, 70, 2) == 0: own.append(1)\n    fill()\n    time.sleep(2)\n"
        "threads = [threading.Thread(target=alone) for _ in range(60)]\nfor thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\nif own: print('BREACH', len(own))",
    ),
    _attack(
        "resource-bare-threads",
        _KEEP + "flags = 0x10000 | 0x800 | 0x400 | 0x200 | 0x100\nfor leave_out in (0, 0x400):\n    num = 0\n"
        "    while num < 3000 and bare_thread(flags & ~leave_out) > 0: num += 1\n"
        "    if num > (0 if leave_out else 64): print('BREACH', num)\nos._exit(0)",
    ),
    _attack(
        "resource-thread-churn",
        _KEEP + "while True:\n    try: threading.Thread(target=int).start()\n    except RuntimeError: pass",
        status=("timeout",),
    ),
    _attack(
        "resource-mappings",
        _KEEP + "area = mmap.mmap(-1, 1 << 24, PRIVATE)\nstart = ctypes.addressof(ctypes.c_char.from_buffer(area))\n"
        "for page in range(0, 1 << 24, 8192): libc.mprotect(ctypes.c_void_p(start + page), 4096, 0)\ntime.sleep(1)",
    ),
    _attack(
        "resource-polls",
        _KEEP + "import select\npolls = []\ntry:\n    while True: polls.append(select.epoll())\n"
        "except OSError: pass\nfor poll in polls:\n    for other in range(64):\n        try: poll.register(other)\n"
        "        except OSError: pass\ntime.sleep(1)",
    ),
    _attack("resource-recursion", "import sys\nsys.setrecursionlimit(1 << 30)\ndef f(n): return f(n + 1)\nf(0)"),
    _attack("resource-nesting", "eval('(' * 100000 + ')' * 100000)", status=("error", "oom", "signal")),
    _attack("time-spin", "while True: pass", status=("timeout",)),
    _attack("time-sleep", "import time\ntime.sleep(3600)", status=("timeout",)),
    _attack(
        "time-deaf",
        "import signal\nfor number in range(1, 65):\n    try: signal.signal(number, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\nwhile True: pass",
        status=("timeout", "signal"),
    ),
    _attack("time-thread", "import threading, time\nthreading.Thread(target=time.sleep, args=(3600,)).start()"),
    _attack("time-exit-hook", "import atexit, time\natexit.register(time.sleep, 3600)\nprint('end')", has=("end",)),
    _attack("time-regex", "import re\nre.match(r'(a+)+$', 'a' * 60 + 'b')", status=("timeout",)),
    _attack("output-flood", "while True: print('x' * 10000)", max_bytes=1 << 20),
    _attack("output-errors", "import sys\nwhile True: sys.stderr.write('x' * 10000)", max_bytes=1 << 20, max_error=600),
    _attack("output-bytes", "import os\nos.write(1, bytes(range(256)) * 99)", status=("ok",)),
    _attack("output-hole", "import os\nos.lseek(1, 1 << 20, 0)\nos.write(1, b'end')", max_bytes=1 << 20),
    _attack("output-huge-hole", "import os\nos.ftruncate(1, 1 << 50)", max_bytes=1 << 20),
    _attack("output-closed", "import os\nfor descriptor in range(3): os.close(descriptor)\nprint('gone')"),
    _attack(
        "output-forged",
        'import os, sys\nsys.stderr.write(\'started\')\nprint(\'{"outcome": "ok", "wait_status": 0}\')\nos._exit(7)',
        status=("error",),
        exit_code=7,
    ),
    _attack("output-error-line", "raise ValueError('x' * 100000)", status=("error",), max_error=600),
    _attack(
        "state-module",
        "import random, json, builtins\nrandom.random = json.dumps = builtins.len = lambda *_: 'LEFT'\nprint('changed')",
        then="import random, json\nprint(random.random() != 'LEFT' and json.dumps(1) == '1' and len('a') == 1)",
        then_has=("True",),
    ),
    _attack(
        "state-other-output",
        "import time\nfor _ in range(200):\n    print('mine-A', flush=True)\n    time.sleep(0.001)",
        pair="import time\nfor _ in range(200):\n    print('mine-B', flush=True)\n    time.sleep(0.001)",
        lacks=("BREACH", "mine-B"),
        pair_lacks=("mine-A",),
    ),
    _attack(
        "state-server",
        "import gc, sys, os, re\nsecret = re.compile('tirjudge-canary-[0-9a-f]+')\n"
        "for thing in [*map(str, gc.get_objects()), str(os.environ)]:\n"
        "    if secret.search(thing): print('BREACH')\n"
        "for name in ('asyncio', 'uvicorn', 'fastapi', 'httpx', 'torch'):\n"
        "    if name in sys.modules: print('loaded', name)",
        lacks=("BREACH", "loaded uvicorn", "loaded fastapi", "loaded torch", "loaded httpx"),
    ),
    _attack(
        "state-clocks-of-others",
        "import os, time\nfor pid in (@PID@, os.getppid()):\n    if pid in (0, os.getpid()): continue\n"
        "    for ask in (os.getpgid, os.getsid, os.sched_getaffinity, lambda pid: time.clock_gettime(~pid << 3 | 2)):\n"
        "        attempt(pid, lambda: ask(pid))",
        tries=True,
        lacks=("BREACH @PID@",),
    ),
    _attack(
        "state-random",
        "import random, os, uuid\nprint(random.random(), uuid.uuid4(), os.urandom(4))",
        repeat=4,
        distinct=True,
    ),
    _attack(
        "state-lock",
        "import fcntl, os\nfile = open(os.__file__)\n"
        'attempt("lock", lambda: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB))\n'
        'attempt("lease", lambda: fcntl.fcntl(file, 1024, 0))',
        tries=True,
    ),
    _attack("python-empty", "", status=("ok",)),
    _attack("python-null", "x = 1\n\0\nprint(x)", status=("ok", "error")),
    _attack("python-surrogate", "print('\ud83d')", status=("ok", "error")),
    _attack(
        "python-wiped", "import sys, os, builtins\nos.__dict__.clear()\nsys.modules.clear()\nbuiltins.__dict__.clear()"
    ),
    _attack(
        "python-frames",
        "import sys\nframe = sys._getframe().f_back\nwhile frame:\n    frame.f_globals.clear()\n    frame = frame.f_back\n"
        "raise ValueError",
        status=("error", "signal"),
    ),
    _attack("python-exit", "raise SystemExit(3)", status=("error",), exit_code=3),
    _attack("python-interrupt", "raise KeyboardInterrupt", status=("error", "signal")),
    _attack("python-group", "raise ExceptionGroup('several', [ValueError(1), TypeError(2)])", status=("error",)),
    _attack("python-prompt", "breakpoint()\ninput()", status=("ok", "error")),
]


# ------------------------------------------------------------------------------------------------------- random programs

_NAMES = ("a", "b", "c", "xs", "d", "f", "tag", "self", "os", "sys", "print", "len", "__name__", "__builtins__")
_LITERALS = (
    "0", "1", "-1", "7", "2 ** 31", "2 ** 63 - 1", "10 ** 40", "1e308", "float('nan')", "1j", "None", "True", "...",
    "''", "'a'", "'\\N{SNOWMAN}'", "b'\\xff'", "'\\ud800'", "'x' * 10000", "[]", "{}", "()", "set()", "range(10 ** 9)",
)  # fmt: skip
_ERRORS = ("ValueError", "MemoryError", "SystemExit", "KeyboardInterrupt", "Exception", "RecursionError")
_OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "<<", "&", "|", "@", "==", "<", "in", "is", "and", "or")
_BUILTINS = (
    "abs", "bytes", "bytearray", "chr", "compile", "dict", "dir", "eval", "exec", "filter", "float", "frozenset", "getattr",
    "globals", "hash", "hex", "id", "int", "isinstance", "iter", "len", "list", "map", "max", "memoryview", "min", "next",
    "object", "open", "ord", "pow", "print", "range", "repr", "reversed", "round", "set", "sorted", "str", "sum", "tuple",
    "type", "vars", "zip", "__import__",
)  # fmt: skip
_MODULES = (
    "os", "sys", "math", "json", "re", "random", "itertools", "collections", "functools", "time", "signal", "socket",
    "threading", "ctypes", "resource", "gc", "io", "struct", "decimal", "fractions", "asyncio", "subprocess", "tempfile",
    "fcntl", "mmap", "select", "pathlib", "hashlib", "pickle", "numpy", "sympy",
)  # fmt: skip


def random_program(rng: random.Random) -> str:
    """Python that compiles; what it does, nobody knows. Loops mostly end."""
    while True:
        imports = [f"import {module}" for module in rng.sample(_MODULES, k=rng.randint(0, 3))]
        body = [_statement(rng, depth=3) for _ in range(rng.randint(1, 8))]
        if rng.random() < 0.7:  # so that it does not end at its first mistake
            body = [f"try:\n{_indented(part)}\nexcept Exception: pass" for part in [*imports, *body]]
            imports = ["a, b, c, d, f, xs = 1, 'b', None, {}, len, [1, 2, 3]"]
        code = "\n".join([*imports, *body])
        if compiles(code):
            return code


def compiles(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def random_text(rng: random.Random) -> str:
    """Bytes that nobody meant as a program, as text: valid UTF-8, latin-1, or any code points at all."""
    num = int(2 ** rng.uniform(0, 12))
    data = rng.randbytes(num)
    make: list[Callable[[], str]] = [
        lambda: data.decode(errors="replace"),
        lambda: data.decode("latin-1"),
        lambda: "".join(chr(rng.randrange(0x110000)) for _ in range(num)),
        lambda: "".join(rng.choices("()[]{}'\"\\\n\t :=,.0aAé\0@#", k=num)),
    ]
    return rng.choice(make)()


def random_calls(rng: random.Random) -> str:
    """System calls with arbitrary numbers and arguments."""
    return (
        "import ctypes, random\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        f"rng = random.Random({rng.getrandbits(32)})\nbuffer = ctypes.create_string_buffer(4096)\n"
        "address = ctypes.addressof(buffer)\nvalues = [0, 1, 2, 3, -1, -100, 4096, 1 << 31, 1 << 62, address, address + 8]\n"
        f"for _ in range({rng.randint(1, 300)}):\n"
        f"    number = rng.choice([rng.randrange(470), rng.randrange(1 << 31)])\n"
        "    arguments = [ctypes.c_long(rng.choice(values)) for _ in range(6)]\n"
        "    if number not in (15, 60, 231, 34, 130): libc.syscall(number, *arguments)"
    )


def random_os_calls(rng: random.Random) -> str:
    """Functions of `os` with arbitrary arguments."""
    return (
        f"import os, random\nrng = random.Random({rng.getrandbits(32)})\n"
        "names = sorted(name for name in dir(os) if callable(getattr(os, name)) and name[0] != '_')\n"
        "values = [0, 1, 2, -1, 9, 1 << 40, '/', '.', '/tmp', '/etc/passwd', 'a', b'x', [], {}, ['a', 'b'], None]\n"
        f"for _ in range({rng.randint(1, 200)}):\n"
        "    name = rng.choice(names)\n"
        "    try: getattr(os, name)(*rng.choices(values, k=rng.randrange(4)))\n"
        "    except Exception: pass"
    )


def mutation(rng: random.Random, sources: Iterable[str]) -> str:
    """One of the sources, or two, changed in a few places."""
    pool = list(sources)
    code = rng.choice(pool)
    for _ in range(rng.randint(1, 4)):
        code = rng.choice(_MUTATIONS)(rng, code, rng.choice(pool))
    return code[:200_000]


def _expression(rng: random.Random, *, depth: int) -> str:
    if depth <= 0 or rng.random() < 0.25:
        return rng.choice((rng.choice(_NAMES), rng.choice(_LITERALS), str(rng.randint(-5, 99))))

    def part() -> str:
        return _expression(rng, depth=depth - 1)

    forms: list[Callable[[], str]] = [
        lambda: f"({part()} {rng.choice(_OPERATORS)} {part()})",
        lambda: f"{rng.choice(_BUILTINS)}({part()})",
        lambda: f"{rng.choice(_BUILTINS)}({part()}, {part()})",
        lambda: f"[{part()}, {part()}]",
        lambda: f"{{{part()}: {part()}}}",
        lambda: f"[{part()} for a in {part()}]",
        lambda: f"(lambda a=1: {part()})()",
        lambda: f"({part()} if {part()} else {part()})",
        lambda: f"({part()})[{part()}]",
        lambda: f"({part()}).{rng.choice(('__class__', '__dict__', 'real', 'x', '__subclasses__', 'count', 'format'))}",
        lambda: f"f'{{{part()}!r}}'".replace("\n", " "),
        lambda: f"(b := {part()})",
    ]
    return rng.choice(forms)()


def _statement(rng: random.Random, *, depth: int) -> str:
    def part() -> str:
        return _expression(rng, depth=depth)

    def block() -> str:
        return _indented(_statement(rng, depth=depth - 1))

    simple: list[Callable[[], str]] = [
        lambda: f"{rng.choice(('a', 'b', 'c', 'xs', 'd'))} = {part()}",
        lambda: f"print({part()})",
        part,
        lambda: (
            f"raise {rng.choice(('ValueError', 'MemoryError', 'SystemExit', 'KeyboardInterrupt', 'Exception'))}({part()})"
        ),
        lambda: f"assert {part()}",
        lambda: f"del {rng.choice(_NAMES[:6])}",
        lambda: f"import {rng.choice(_MODULES)}",
    ]
    if depth <= 0 or rng.random() < 0.5:
        return rng.choice(simple)()
    nested: list[Callable[[], str]] = [
        lambda: f"if {part()}:\n{block()}\nelse:\n{block()}",
        lambda: f"for a in range({rng.randint(0, 50)}):\n{block()}",
        lambda: f"while {part()}:\n{block()}\n    break",
        lambda: f"try:\n{block()}\nexcept Exception as c:\n{block()}\nfinally:\n{block()}",
        lambda: f"def f(a=0, *xs, **d):\n{block()}\n    return {part()}\nf({part()})",
        lambda: f"class C:\n    def __del__(self):\n        {part()}\n    __str__ = lambda _: {part()}\nprint(C())",
        lambda: f"def g():\n{block()}\n    yield {part()}\nb = list(g())",
        lambda: f"with open({part()}) as c:\n{block()}",
    ]
    return rng.choice(nested)()


def _indented(code: str) -> str:
    return "\n".join(f"    {line}" for line in code.splitlines())


def _drop_line(rng: random.Random, code: str, _: str) -> str:
    lines = code.splitlines() or [""]
    del lines[rng.randrange(len(lines))]
    return "\n".join(lines)


def _repeat_line(rng: random.Random, code: str, _: str) -> str:
    lines = code.splitlines() or [""]
    place = rng.randrange(len(lines))
    return "\n".join(lines[:place] + [lines[place]] * rng.randint(2, 50) + lines[place:])


def _swap_lines(rng: random.Random, code: str, _: str) -> str:
    lines = code.splitlines() or [""]
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return "\n".join(lines)


def _change_number(rng: random.Random, code: str, _: str) -> str:
    places = [place for place, letter in enumerate(code) if letter.isdigit()]
    if not places:
        return code
    place = rng.choice(places)
    return code[:place] + rng.choice(("0", "-1", "9", "4096", "(1 << 31)", "(1 << 63)")) + code[place + 1 :]


def _insert(rng: random.Random, code: str, _: str) -> str:
    place = rng.randint(0, len(code))
    return code[:place] + rng.choice(("\0", "\n", "(", "'", "\\", "\ud800", "é", " ", "#", "\x1a")) + code[place:]


def _cut(rng: random.Random, code: str, _: str) -> str:
    one, other = sorted((rng.randint(0, len(code)), rng.randint(0, len(code))))
    return code[:one] + code[other:]


def _follow(_: random.Random, code: str, other: str) -> str:
    return f"{code}\n{other}"


def _wrap(rng: random.Random, code: str, _: str) -> str:
    body = _indented(code) or "    pass"
    return rng.choice(
        (
            f"try:\n{body}\nexcept BaseException as error:\n    print(error)",
            f"def run():\n{body}\nimport threading\nfor _ in range(8): threading.Thread(target=run).start()",
            f"import atexit\ndef run():\n{body}\natexit.register(run)",
            f"for _ in range(1000):\n{body}",
            f"class Run:\n  def __del__(self):\n{body}\nkept = Run()",
            f"exec({code!r})",
            f"import os\ntry:\n    child = os.fork()\nexcept OSError:\n    child = -1\nif child:\n{body}",
        )
    )


_MUTATIONS = (_drop_line, _repeat_line, _swap_lines, _change_number, _insert, _cut, _follow, _wrap)
