"""The program that the judge learns to write: checks of the responses, with parameters read from the prompt.

The model never copies a number or a keyword into its code. It refers to it by index: `n[2]` is the third number in the
prompt, `q[0]` the first quotation, `w[0]` the first word that follows "word", "term" or "letter". So the model only has to
learn which checks the prompt requires and which index each parameter has. A missing parameter is 0 or an empty string. So a
superfluous check affects all responses equally and does not crash the program.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tirjudge.types import Mode

NUMBER_WORDS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
NUMBER = re.compile(rf"\d+|\b(?:{'|'.join(NUMBER_WORDS)})\b", re.IGNORECASE)
QUOTATION = re.compile(r"(?<!\w)[\"'“‘](.+?)[\"'”’](?!\w)")

NAMED_WORD = re.compile(r"(?:word|term|letter)s? (\w+)", re.IGNORECASE)

_NUMBERS = f'''\
W = "{" ".join(NUMBER_WORDS)}".split()
n = re.findall(r"\\d+|\\b(?:" + "|".join(W) + r")\\b", prompt, re.I)
n = [int(x) if x.isdigit() else W.index(x.lower()) + 2 for x in n] + [0] * 9
'''
_QUOTATIONS = f"""\
q = re.findall(r"{QUOTATION.pattern}", prompt) + [""] * 9
"""
_NAMED_WORDS = f"""\
w = re.findall(r"{NAMED_WORD.pattern}", prompt, re.I) + [""] * 9
"""
_IS_JSON = """\
def is_json(r):
    try:
        json.loads(r)
        return True
    except ValueError:
        return False
"""
_LAST = """\
def last(r):
    x = re.findall(r"-?\\d+(?:\\.\\d+)?", r.replace(",", ""))
    return float(x[-1]) if x else None
"""
_TESTS = r"""
t = re.findall(r"(\w+)\((.*)\) -> (.*)", prompt)
t = [{"call": f, "args": json.loads(f"[{a}]"), "returns": json.loads(v)} for f, a, v in t]
"""[1:]
_COMPARE = """\
s = {k: checks(r) for k, r in responses.items()}
for k, c in s.items():
    print(k, *map(int, c))
m = max(map(sum, s.values()))
print("best", *[k for k, c in s.items() if sum(c) == m])
"""
_SCORE = """\
c = checks(response)
print(*map(int, c))
print("score", 1 + 9 * sum(c) // len(c))
"""

END_OF_CHECKS = "    ]\n"
"""End of the list of checks. The rest of a program is boilerplate that the checks determine."""


def program(checks: Sequence[str], *, mode: Mode) -> str:
    """Return the complete program for some checks, each a Python expression over the response `r`."""
    lines = "".join(f"        {check},\n" for check in checks)
    source = "".join(checks)
    parts = [
        "import json\n" if "is_json(" in source or "tests(" in source else "",
        "import math\n" if "math." in source else "",
        "import re\n",
        f"def checks(r):\n    return [\n{lines}{END_OF_CHECKS}",
        _NUMBERS if re.search(r"\bn\[", source) else "",
        _QUOTATIONS if re.search(r"\bq\[", source) else "",
        _NAMED_WORDS if re.search(r"\bw\[", source) else "",
        _IS_JSON if "is_json(" in source else "",
        _LAST if "last(" in source else "",
        _TESTS if "tests(" in source else "",
        _SCORE if mode is Mode.POINTWISE else _COMPARE,
    ]
    return "".join(parts)


def run_trusted(code: str, *, bindings: Mapping[str, object]) -> str:
    """Run a program in this process and return what it prints. `bindings` may contain a stand-in for `tests`.

    Only for output of `program`, which consists of this package's expressions. Data generation needs thousands of runs
    per second. Code written by a model must run in the sandbox.
    """
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "<own program>", "exec"), dict(bindings))  # noqa: S102 (trusted code, see above)
    return printed.getvalue()


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Positions of numbers and quotations in a prompt, as programs find them."""

    numbers: tuple[int, ...]
    """Start offset of each number."""
    quotations: tuple[int, ...]
    """Start offset of the text inside each pair of quotation marks."""
    named_words: tuple[int, ...]
    """Start offset of each word that follows "word", "term" or "letter"."""

    @classmethod
    def of(cls, prompt: str) -> Places:
        """Return the positions in a prompt."""
        return cls(
            numbers=tuple(match.start() for match in NUMBER.finditer(prompt)),
            quotations=tuple(match.start(1) for match in QUOTATION.finditer(prompt)),
            named_words=tuple(match.start(1) for match in NAMED_WORD.finditer(prompt)),
        )

    def resolve(self, code: str, *, op: str, number_at: int | None, quotes_at: Sequence[int], quoted: bool) -> str:
        """Return a check with `n0`, `q0` and `qs` replaced by indexed parameters such as `n[2]`.

        Args:
            code: Python expression of an instruction.
            op: Comparison that replaces {op}.
            number_at: Start offset of its number in the prompt. None: the instruction has no number.
            quotes_at: Start offsets of its quotations.
            quoted: False if the instruction names a word without quotation marks, as in: the word sea.

        Raises:
            ValueError: a program would not find a parameter at its offset.
        """
        code = code.replace("{op}", op)
        if number_at is not None:
            code = re.sub(r"\bn0\b", f"n[{self.numbers.index(number_at)}]", code)
        if quotes_at:
            name, places = ("q", self.quotations) if quoted else ("w", self.named_words)
            found = [places.index(offset) for offset in quotes_at]
            if found != list(range(found[0], found[0] + len(found))):
                raise ValueError("the quotations of one instruction are not consecutive")
            code = re.sub(r"\bq0\b", f"{name}[{found[0]}]", code)
            code = re.sub(r"\bqs\b", f"{name}[{found[0]}:{found[-1] + 1}]", code)
        return code
