"""Programs that solve tasks: one or two lines that look the answer up, and the rest, which depends on the mode alone.

A program does not copy names. `q[0]` and `q[1]` are the quoted names of the question, and `w[0]`, `w[1]`, `w[2]` are the
words after "the", "table", "and", "between" and "last": names of tables, columns and properties. The rest compares each
response with what was found: a response is right if it has all words of a found value, or if nothing was found and it says so
with the word "not".
"""

from __future__ import annotations

import re

_NAMES = r"(?:the|tables?|and|between|last) (?!(?:tables?|graph|notes|last)\b)(\w+)"

START = f"""\
import re
q = re.findall(r'"(.+?)"', prompt)
w = re.findall(r"{_NAMES}", prompt)
"""
"""Start of every program."""

END_OF_LOOKUP = "v = ["
"""Start of the rest."""

_REST = """\
v = [str(y) if type(y) is not bool else "Yes" if y else "No" for z in x for y in z.values() if y is not None]
def words(t):
    return set(re.findall(r"\\w[\\w-]*\\w|\\w", t))
def right(r):
    return any(words(y) <= words(r) for y in v) if v else "not" in words(r)
"""
_COMPARE = """\
s = {k: right(r) for k, r in responses.items()}
for k, y in s.items():
    print(k, int(y))
print("best", *[k for k, y in s.items() if y])
"""
_SCORE = """\
print("score", 10 if right(response) else 1)
"""

TOP = 's = max((s for s in stores() if s["kind"] == "table"), key=lambda s: s["authority"])["name"]\n'
"""Line that finds the table store with the highest authority."""

VALID = 's = [s["name"] for s in stores() if s["kind"] == "table" and s["valid_from"] <= q[0] <= s["valid_until"]][0]\n'
"""Line that finds the table store that is valid on the day of the question."""


def program(lookup: str, *, is_pointwise: bool) -> str:
    """Return the program with these lines between `START` and the rest."""
    return START + lookup + _REST + (_SCORE if is_pointwise else _COMPARE)


def of_table(select: str, tables: str, *, store: str = '"register"', params: str = "q[:1]", end: str = "") -> str:
    """Return the line that looks up a value in tables. Names stand in braces, for `with_words`."""
    return f'x = sql({store}, f"SELECT {select} FROM {tables} WHERE name = ?{end}", {params})\n'


def of_class() -> str:
    """Return the line that asks whether a thing is in a class."""
    return 'x = [{"y": is_a("graph", q[0], q[1])}]\n'


def of_graph(path: str) -> str:
    """Return the line that follows a path of properties, which ends with the variable ?y."""
    return f"""x = sparql("graph", f'SELECT ?y {{{{ ?s rdfs:label "{{q[0]}}" ; {path} }}}}')\n"""


def of_documents(label: str) -> str:
    """Return the lines that find what the document of a thing tells."""
    return (
        't = [h["text"] for h in search("notes", q[0], 9) if h["text"].startswith(q[0])]\n'
        f'x = [{{"y": y}} for y in re.findall(rf" {label} is (\\w+)", " ".join(t))]\n'
    )


def with_words(lookup: str, *, question: str) -> str:
    """Return a lookup with each name in braces replaced by its number among the names of the question.

    Raises:
        ValueError: the question lacks a name.
    """
    names = re.findall(_NAMES, question)
    return re.sub(r"\{([A-Za-z]+)\}", lambda found: f"{{w[{names.index(found[1])}]}}", lookup)
