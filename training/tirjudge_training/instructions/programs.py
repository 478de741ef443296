"""The program that checks the instructions of a prompt: the judge writes the list of checks, the rest follows from it."""

from __future__ import annotations

from collections.abc import Sequence

from tirjudge.types import Mode
from tirjudge_training.instructions.helpers import definitions

START = "import json\nimport math\nimport re\n\ndef checks(r):\n    return [\n"
"""Start of every program."""
END_OF_CHECKS = "    ]\n"
"""End of the list of checks, which determines the rest of the program."""
COMPARE = """\
class Missed(float):
    def __bool__(self):
        return False

def compared(name, step):
    def compare(x, n):
        holds = getattr(x.given, name)(n)
        if type(n) is not int or holds:
            return holds
        n += step
        return Missed(max(0, (min(int(x), n) + 1) / (max(int(x), n) + 1) * 0.99) if x else 0.99 * (n == 0))
    return compare

steps = {"__lt__": -1, "__le__": 0, "__eq__": 0, "__ge__": 0, "__gt__": 1}
Count = type("Count", (int,), {k: compared(k, x) for k, x in steps.items()} | {"__hash__": int.__hash__})

def counting(f):
    def g(*xs, **ys):
        x = f(*xs, **ys)
        if not isinstance(x, int) or type(x) is bool:
            return x
        count = Count(x)
        count.given = x
        return count
    return g

for k in checks.__code__.co_names:
    if type(globals().get(k)) is type(checks):
        globals()[k] = counting(globals()[k])

def nearness(x):
    return sum(y for y in x if isinstance(y, Missed)) / len(x)

c = {k: checks(r) for k, r in responses.items()}
n = {k: sum(map(bool, x)) for k, x in c.items()}
near = {k: nearness(x) for k, x in c.items() if n[k] == max(n.values())}
for k, x in c.items():
    print(k, *(int(bool(y)) for y in x))
nearest = [k for k, x in near.items() if x == max(near.values())]
if len(nearest) == 1 < len(near):
    print("nearest:", *nearest)
print("CHECK", json.dumps(n))
"""
"""End of a program that compares responses by the number of checks that they pass. If several pass the most, it names the
response whose failed comparisons of counts hold most nearly: 140 words of 150 are nearer than 100."""
SCORE = """\
c = [bool(x) for x in checks(response)]
print(*map(int, c))
print("CHECK", json.dumps({"score": 1 + 9 * sum(c) // len(c)}))
"""
"""End of a program that scores one response: 10 if it passes all checks, 1 if it passes none."""


def program(checks: Sequence[str], *, mode: Mode) -> str:
    """Return the program for some checks, each an expression over the response `r`."""
    lines = "".join(f"        {check},\n" for check in checks)
    sources = "".join(f"\n{source}" for source in definitions(lines))
    return f"{START}{lines}{END_OF_CHECKS}{sources}\n{SCORE if mode is Mode.POINTWISE else COMPARE}"
