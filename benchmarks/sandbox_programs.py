"""Programs for the sandbox measurements: the built-in attacks, random programs, and mutations of both.

A case is an attack and the description of a safe end. The built-in cases are in `sandbox_attacks.toml`. Each has an `id` that
starts with its category, the `code`, the names of the preludes that are put before the code, and fields of `Probe`. Another
file of cases contains one JSON object per line:

    {"id": ..., "category": ..., "code": ..., "expect": a safe end in words, "probe": {fields of `Probe`}}

A program prints BREACH if its attack succeeds. `@FILE@`, `@PID@`, `@PORT@`, `@ABS@`, `@SECRET@` and `@TAG@` are replaced by
the names of canaries on the host (see `sandbox_host.py`).
"""

from __future__ import annotations

import ast
import json
import random
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

ANY_END = ("ok", "error", "signal", "timeout", "oom")


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """How an attack ends safely."""

    status: tuple[str, ...] = ANY_END
    """Allowed outcomes. `signal` is the outcome `crash`; `output_limit` and `refused` count as `error`."""
    max_wall: float = 4.0
    """Maximum seconds in the sandbox."""
    lacks: tuple[str, ...] = ("BREACH",)
    """Texts that must not occur in any result: of this program, its pair and the next programs."""
    has: tuple[str, ...] = ()
    """Texts that must occur in its output."""
    error_has: tuple[str, ...] = ()
    """Texts that must occur in its error line."""
    exit_code: int | None = None
    """Required exit code. None: any."""
    max_bytes: int | None = None
    """Maximum bytes of output, as UTF-8. None: no limit."""
    max_error: int | None = None
    """Maximum characters of the error line. None: no limit."""
    then: str = ""
    """Program to run on every slot afterwards. Empty: only the standard check of the environment."""
    then_has: tuple[str, ...] = ()
    """Texts that must occur in the output of `then`."""
    then_skip_error: bool = False
    """Whether `then` may fail."""
    pair: str = ""
    """Program to run at the same time as the attack. Empty: no such program."""
    pair_lacks: tuple[str, ...] = ()
    """Texts that must not occur in the result of `pair`."""
    repeat: int = 1
    """Number of concurrent runs of the attack."""
    distinct: bool = False
    """Whether all repetitions must print different outputs."""
    host: tuple[str, ...] = ()
    """Parts of the host that the attack targets. For information only: the runner always checks the whole host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An attack, and how it ends safely."""

    id: str
    category: str
    code: str
    expect: str = ""
    probe: Probe = field(default_factory=Probe)

    def filled(self, values: Mapping[str, str]) -> Case:
        """Return this case with its placeholders replaced by the names of canaries."""

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
    """Read a file of cases.

    Raises:
        ValueError: a line is not a case.
    """
    cases = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            given = json.loads(line)
            texts = {name: given[name] for name in ("id", "category", "code")}
            cases.append(Case(**texts, expect=given.get("expect", ""), probe=_probe(given["probe"])))
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
    return cases


def _probe(given: Mapping[str, Any]) -> Probe:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return Probe(**values)


_OWN = tomllib.loads(Path(__file__).with_name("sandbox_attacks.toml").read_text(encoding="utf-8"))
PRELUDES: dict[str, str] = _OWN["preludes"]
HOSTILE: dict[str, dict[str, Any]] = _OWN["hostile"]
"""Kind -> the `code` of a program that exhausts a resource, and its allowed outcomes (`ends`)."""


def _own_attack(given: Mapping[str, Any]) -> Case:
    code = "".join([*(PRELUDES[name] for name in given.get("prelude", ())), given["code"]])
    probe = _probe({name: value for name, value in given.items() if name not in ("id", "code", "prelude")})
    return Case(id=given["id"], category=given["id"].split("-")[0], code=code, probe=probe)


ATTACKS = [
    *map(_own_attack, _OWN["attacks"]),
    # A TOML file cannot contain a lone surrogate.
    Case(id="python-surrogate", category="python", code="print('\ud83d')", probe=Probe(status=("ok", "error"))),
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
    """Return a random program that compiles. Most of its loops end."""
    while True:
        imports = [f"import {module}" for module in rng.sample(_MODULES, k=rng.randint(0, 3))]
        body = [_statement(rng, depth=3) for _ in range(rng.randint(1, 8))]
        if rng.random() < 0.7:  # so that the first exception does not end the program
            body = [f"try:\n{_indented(part)}\nexcept Exception: pass" for part in [*imports, *body]]
            imports = ["a, b, c, d, f, xs = 1, 'b', None, {}, len, [1, 2, 3]"]
        code = "\n".join([*imports, *body])
        if compiles(code):
            return code


def compiles(code: str) -> bool:
    """Whether Python accepts the code."""
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def random_text(rng: random.Random) -> str:
    """Return random bytes as text: decoded as UTF-8 or latin-1, or arbitrary code points, or punctuation."""
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
    """Return a program that makes system calls with random numbers and arguments."""
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
    """Return a program that calls functions of `os` with random arguments."""
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
    """Return one or two of the sources with a few random changes."""
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
