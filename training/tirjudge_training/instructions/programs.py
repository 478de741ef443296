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
c = {k: [bool(x) for x in checks(r)] for k, r in responses.items()}
for k, x in c.items():
    print(k, *map(int, x))
print("CHECK", json.dumps({k: sum(x) for k, x in c.items()}))
"""
"""End of a program that compares responses by the number of checks that they pass."""
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
