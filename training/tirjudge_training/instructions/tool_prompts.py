"""Prompts whose checks call tools: look-ups in the stores of a request, and requests for code with examples.

A look-up names a thing and an attribute, which the check copies: `tells(r, "Anna Schmidt", "due date")`. The attribute may
be a verb or an adjective of the question, such as "earn" for a column `salary`. The check of code is always
`examples(r, prompt)`, which makes tests of the examples in the prompt. Near misses have no check: questions that need more
than one value, code in other languages, code without an example.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from random import Random

from tirjudge_evidence.tasks.generating import EvidenceTask, draw_tasks
from tirjudge_training.instructions.composing import SYLLABLES, Composer
from tirjudge_training.instructions.written import WRITERS, lines_of, normalized

TRAINING_TOOL_WRITERS = ("oda", "pia", "rex", "sol", "tia", "vic", "wes", "yan")
HELD_OUT_TOOL_WRITERS = ("quin", "uli")
"""Writers whose texts are for evaluation only."""
ANSWERED_WRITER = "quin"
"""The held-out writer whose requests for code have a right and a wrong answer."""

EXAMPLES = "examples(r, prompt)"
"""Check of a request for code that shows examples."""

FUNCTION_OF = {"fact": "tells", "kind": "of_kind"}
"""Name in the files of look-ups -> function of the program."""

_SLOT = re.compile(r"\{(\w+)\}")
_LOOKUP = re.compile(r'(?P<name>\w+)(?P<texts>(?: "[^"]+")*)(?: = (?P<column>[\w -]+))?')

PromptWithChecks = tuple[str, tuple[str, ...]]
"""A prompt, and the expressions of its checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUp:
    """A question, with slots for names. The notation in the files is `fact "{e}" "{a}"`, `fact "{p}" "earn" = salary`,
    `kind "{e}" "{k}"` or `none`, then ` | ` and the question."""

    function: str | None
    """Function of the program that checks a response; None: there is none."""
    texts: tuple[str, ...] = ()
    """Arguments of the function, slots or words of the question."""
    column: str | None = None
    """Name that the column has, if the question says it with another word."""
    text: str

    def filled(self, rng: Random, composer: Composer) -> FilledLookUp:
        """Return the question with drawn values in place of its slots."""
        slots = dict.fromkeys(_SLOT.findall(" ".join((*self.texts, self.text))))
        values = {slot: _VALUES[slot[0]](rng, composer) for slot in slots}

        def fill(text: str) -> str:
            return _SLOT.sub(lambda match: values[match[1]], text)

        text = _marked(self.text, rng=rng)
        texts = (one if one in text or "{" in one else one.lower() for one in self.texts)
        return FilledLookUp(self.function, tuple(map(fill, texts)), fill(text))


@dataclass(frozen=True, slots=True)
class FilledLookUp:
    """A question with its look-up."""

    function: str | None
    texts: tuple[str, ...]
    prompt: str

    @property
    def checks(self) -> tuple[str, ...]:
        """The call of the function, or nothing."""
        return () if self.function is None else (called(self.function, *self.texts),)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTexts:
    """What some writers wrote."""

    lookups: tuple[LookUp, ...]
    code: tuple[tuple[bool, str], ...]
    """Whether the prompt shows examples from which a test can be made, and the prompt."""
    facts: tuple[str, ...]
    """Background."""


@cache
def tool_texts(writers: tuple[str, ...]) -> ToolTexts:
    """Return the texts of some of this package's writers. Held-out look-ups that a training writer also wrote are left out.

    Raises:
        ValueError: a line is not valid.
    """
    folders = [WRITERS / name for name in writers]
    lookups = [_lookup(line) for folder in folders for line in lines_of(folder / "lookups.txt")]
    if set(writers) <= set(HELD_OUT_TOOL_WRITERS):
        known = {normalized(one.text) for one in tool_texts(TRAINING_TOOL_WRITERS).lookups}
        lookups = [one for one in lookups if normalized(one.text) not in known]
    code = [
        (_has_examples(head), text.strip("\n"))
        for folder in folders
        for block in re.split(r"(?m)^---\s*$", (folder / "code.txt").read_text(encoding="utf-8"))
        if block.strip()
        for head, _, text in [block.strip("\n").partition("\n")]
    ]
    facts = tuple(line for folder in folders for line in lines_of(folder / "facts.txt"))
    return ToolTexts(lookups=tuple(lookups), code=tuple(code), facts=facts)


def _lookup(line: str) -> LookUp:
    notation, _, text = line.partition(" | ")
    found = _LOOKUP.fullmatch(notation)
    if found is None or not text:
        raise ValueError(f"writers: {line!r} given; a look-up is fact, kind or none, and a question after a bar")
    if unknown := [slot for slot in _SLOT.findall(text) if slot[0] not in _VALUES]:
        raise ValueError(f"writers: {line!r} given; no slot is {unknown[0]!r}: they begin with {', '.join(_VALUES)}")
    text = text.replace("\\n", "\n")
    name, texts, column = found["name"], tuple(re.findall(r'"([^"]+)"', found["texts"])), found["column"]
    if name == "none" and not texts:
        return LookUp(function=None, text=text)
    if name not in FUNCTION_OF or len(texts) < 2 or not all(one in text for one in texts):
        raise ValueError(f"writers: {line!r} given; a look-up has two texts, and its question has them, too")
    return LookUp(function=FUNCTION_OF[name], texts=texts, column=column, text=text)


def _has_examples(head: str) -> bool:
    if head.strip() not in ("# examples", "# none"):
        raise ValueError(f"writers: {head!r} given; a prompt begins with # examples or # none")
    return head.strip() == "# examples"


# Look-ups -----------------------------------------------------------------------------------------------------------------


def draw_lookup(rng: Random, composer: Composer) -> PromptWithChecks:
    """Draw a question that stores answer, or a near miss, often with background or an instruction about its form."""
    texts = tool_texts(TRAINING_TOOL_WRITERS)
    one = rng.choice(texts.lookups)
    if one.function is None and rng.random() < 0.4:
        one = rng.choice(texts.lookups)
    filled = one.filled(rng, composer)
    text, checks = filled.prompt, filled.checks
    if rng.random() < 0.2:
        text = rng.choice((f"{rng.choice(texts.facts)} {text}", f"{text}\n\n{rng.choice(texts.facts)}"))
    if rng.random() < 0.15:
        asked = composer.instruction(rng)
        text = f"{text}{rng.choice((' ', chr(10), chr(10) * 2))}{asked.text}"
        checks += tuple(check.expression for check in asked.checks)
    return text, checks


def called(function: str, *values: str) -> str:
    """Return the call of a function over the response with some texts."""
    return f"{function}(r{''.join(f', {json.dumps(value, ensure_ascii=False)}' for value in values)})"


def _marked(text: str, *, rng: Random) -> str:
    """Return a text with marks around the name of the thing, in some of the texts, or in small letters."""
    if rng.random() < 0.1:
        text = text[:1].lower() + text[1:]
    left, right = rng.choice((("", ""),) * 5 + (('"', '"'), ("'", "'"), ("“", "”"), ("`", "`"), ("*", "*")))
    return text if '"{e}"' in text else text.replace("{e}", f"{left}{{e}}{right}")


def syllables(rng: Random, low: int, high: int) -> str:
    """Return a word of `low` to `high` syllables that is in no dictionary."""
    return "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(low, high)))


_FIRST = (
    "Anna", "Ben", "Carla", "Deniz", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jakob", "Katya",
    "Liam", "Mei", "Noor", "Otto", "Priya", "Rosa", "Sven", "Tariq", "Uma", "Vera", "Yusuf",
)  # fmt: skip


def _person(rng: Random, composer: Composer) -> str:
    """Draw the name of a person."""
    first = rng.choice(_FIRST)
    return first if rng.random() < 0.25 else f"{first} {syllables(rng, 2, 3).capitalize()}"


def _thing(rng: Random, composer: Composer) -> str:
    """Draw a name or an identifier."""
    word = rng.choice(composer.vocabulary)
    kinds: Sequence[Callable[[], str]] = (
        lambda: syllables(rng, 2, 3).capitalize(),
        lambda: syllables(rng, 2, 3).capitalize(),
        lambda: rng.choice(_FIRST),
        lambda: f"{rng.choice(_FIRST)} {syllables(rng, 2, 3).capitalize()}",
        lambda: f"{word[:3].upper()}-{rng.randint(10, 99999)}",
        lambda: f"{rng.choice('ABCDEFGHKLMNPRSTVWXZ')}{rng.randint(1, 999)}",
        lambda: f"{word.lower()} {rng.randint(2, 4000)}",
        lambda: f"{word.capitalize()} {syllables(rng, 2, 2).capitalize()}",
        lambda: f"the {syllables(rng, 2, 2).capitalize()} {word.lower()}",
        lambda: f"{word.lower()}_{syllables(rng, 1, 2)}",
    )
    return rng.choice(kinds)()


_HEADS = (
    "rate", "price", "owner", "status", "date", "amount", "number", "level", "address", "region", "size", "weight",
    "type", "code", "limit", "term", "fee", "balance", "deadline", "capacity", "manager", "supplier", "version", "priority",
    "score", "length", "colour", "capital", "year", "budget", "quota", "contact", "phone", "warehouse", "dosage",
)  # fmt: skip


def _attribute(rng: Random, composer: Composer) -> str:
    """Draw the name of a column or a property, in words."""
    word, other = (rng.choice(composer.vocabulary).lower() for _ in range(2))
    kinds: Sequence[Callable[[], str]] = (
        lambda: rng.choice(_HEADS),
        lambda: f"{word} {rng.choice(_HEADS)}",
        lambda: word,
        lambda: f"{word} {other}",
        lambda: f"{word}_{rng.choice(_HEADS)}",
        lambda: syllables(rng, 2, 3),
    )
    return rng.choice(kinds)()


def _class(rng: Random, composer: Composer) -> str:
    """Draw the name of a class."""
    word, other = (rng.choice(composer.vocabulary).lower() for _ in range(2))
    kinds: Sequence[Callable[[], str]] = (
        lambda: word,
        lambda: f"{word} {other}",
        lambda: word.capitalize(),
        lambda: f"{word.capitalize()}{other.capitalize()}",
        lambda: syllables(rng, 2, 3).capitalize(),
    )
    return rng.choice(kinds)()


_VALUES: dict[str, Callable[[Random, Composer], str]] = {
    "e": _thing,
    "p": _person,
    "f": _thing,
    "a": _attribute,
    "b": _attribute,
    "c": _attribute,
    "k": _class,
    "t": lambda rng, composer: rng.choice(composer.vocabulary).lower() + rng.choice(("", "s", "_2024", "_list")),
    "n": lambda rng, composer: str(rng.randint(2, 90)),
}
"""First letter of a slot -> draws its value."""


@cache
def _questions(seed: int) -> list[PromptWithChecks]:
    tasks = islice(draw_tasks(seed=f"questions-{seed}", held_out=False), 300)
    return [(task.question, checks_of_task(task)) for task in tasks]


def draw_question_of_task(rng: Random) -> PromptWithChecks:
    """Draw a question about a generated world (see `tirjudge_evidence.tasks`)."""
    return rng.choice(_questions(rng.randrange(12)))


def checks_of_task(task: EvidenceTask) -> tuple[str, ...]:
    """Return the check of a generated question: none if it needs more than one value of a thing."""
    names = re.findall(r'"(.+?)"', task.question)
    if task.conflict in ("latest", "validity") or task.kind in ("limit", "period"):
        return ()
    if task.kind in ("class", "range"):
        return (called("of_kind", *names[:2]),)
    asked = re.search(r'the ((?:\w+ of the )*\w+) of "', task.question)
    path = asked[1].split(" of the ")[::-1] if asked else []
    return (called("tells", names[0], *path),)


# Code ---------------------------------------------------------------------------------------------------------------------

_OTHER_LANGUAGES = (
    "C++", "C", "Java", "JavaScript", "TypeScript", "Rust", "Go", "Kotlin", "Ruby", "PHP", "C#", "Swift", "Lua",
)  # fmt: skip

_ASKS = (
    "Write a {lang} function `{head}`. {does}",
    "{does} Write it as the {lang} function {name}.",
    "I need {head} in {lang}. {does}",
    "Implement {name} in {lang}.\n{does}",
    "{lang}: {head}\n{does}",
    "Please code {name}({args}) for me, in {lang}. {does}",
    "Complete the {lang} function below.\n\n{stub}",
    "{lang} please. {does}\n{stub}",
    "Can you write the {lang} function `{name}` that does this: {does}",
)


def draw_code(rng: Random, composer: Composer) -> PromptWithChecks:
    """Draw a request for code."""
    texts = tool_texts(TRAINING_TOOL_WRITERS)
    if rng.random() < 0.45:
        has_examples, text = rng.choice(texts.code)
        if rng.random() < 0.25:
            text = rng.choice((f"{rng.choice(texts.facts)}\n\n{text}", f"{text}\n\n{rng.choice(texts.facts)}"))
        return _renamed(text, rng=rng), (EXAMPLES,) if has_examples else ()
    return _generated(rng, composer)


def _renamed(text: str, *, rng: Random) -> str:
    """Return a prompt, often with another name of its function."""
    found = re.search(r"\b([a-z]\w*_\w+|[a-z]+)\(", text)
    if (
        found is None
        or rng.random() < 0.4
        or found[1] in ("print", "len", "set", "sorted", "range", "input", "for", "assert")
    ):
        return text
    name = f"{syllables(rng, 1, 2)}_{syllables(rng, 1, 2)}"
    return re.sub(rf"\b{found[1]}\b(?=[(`])", name, text)


def _generated(rng: Random, composer: Composer) -> PromptWithChecks:
    """Draw a request for a function whose examples have a drawn layout and drawn values."""
    word, other = (rng.choice(composer.vocabulary).lower() for _ in range(2))
    name = rng.choice((word, f"{word}_{other}", f"{word}_{other}", f"{word}{other.capitalize()}", f"{other}_of_{word}"))
    shapes = [rng.choice(_LITERALS) for _ in range(rng.choice((1, 1, 1, 2, 2, 3)))]
    result = rng.choice(_LITERALS)
    parameters = rng.sample(
        ("n", "x", "xs", "s", "text", "a", "b", "items", "lst", "nums", "k", "arr", "words"), len(shapes)
    )
    args = ", ".join(
        f"{each}: {rng.choice(('int', 'str', 'List[int]', 'list', 'float'))}" if rng.random() < 0.3 else each
        for each in parameters
    )
    arrow = rng.choice(("", "", " -> int", " -> List[str]", " -> bool", " -> str"))
    is_python, has_examples = rng.random() < 0.75, rng.random() < 0.8
    lines = _example_lines(name, shapes, result, rng=rng) if has_examples else []
    does = " ".join(composer.plain(rng) for _ in range(rng.choice((1, 1, 2, 3))))
    draw = rng.random()
    stub = f'def {name}({args}){arrow}:\n    """'
    body = "\n    ".join([does.replace("\n", " "), *lines])
    if draw < 0.3:  # a bare stub, which is Python
        imports = rng.choice(("", "", "import math\n\n\n", "from typing import List\n\n\n"))
        return f'{imports}{stub}{body}\n    """\n', (EXAMPLES,) if has_examples else ()
    language = rng.choice(("Python", "Python", "python", "Python 3")) if is_python else rng.choice(_OTHER_LANGUAGES)
    if draw < 0.4 and is_python:
        text = f'"""\n{does}\n' + "\n".join(lines) + '\n"""'
        return text, (EXAMPLES,) if has_examples else ()
    head = (
        f"{name}({args}){arrow}"
        if is_python
        else f"{rng.choice(('int', 'auto', 'fn', 'func', 'string'))} {name}({args})"
    )
    asked = rng.choice(_ASKS).format(
        lang=language,
        head=head,
        name=name,
        args=args,
        does=does,
        stub=f'{stub}{does}"""' if is_python else f"{head} {{",
    )
    lead = (
        rng.choice(("", "", "Example:", "Examples:", "For example:", "e.g.", "It has to pass:", "Tests:"))
        if lines
        else ""
    )
    text = "\n".join(line for line in (asked, lead, *lines) if line)
    return text, (EXAMPLES,) if has_examples and is_python else ()


def _example_lines(
    name: str, shapes: Sequence[Callable[[Random], str]], result: Callable[[Random], str], *, rng: Random
) -> list[str]:
    """Draw one to five examples in one layout."""
    layout = rng.choice(_LAYOUTS)
    mark = rng.choice(("", "", "", "- ", "* ", "    "))
    lines: list[str] = []
    for _ in range(rng.choice((1, 2, 2, 3, 3, 5))):
        arguments = rng.choice((", ", ", ", ",")).join(shape(rng) for shape in shapes)
        lines += (mark + layout.format(call=f"{name}({arguments})", value=result(rng))).split("\n")
    return lines


_LAYOUTS = (
    ">>> {call}\n{value}",
    ">>> {call}\n{value}",
    "{call} -> {value}",
    "{call} => {value}",
    "{call} ==> {value}",
    "{call} == {value}",
    "{call} = {value}",
    "{call} returns {value}",
    "{call} should return {value}",
    "{call} must give {value}",
    "assert {call} == {value}",
    "assert {call} == {value}",
    "{call}  # {value}",
    "{call} → {value}",
    ">>> {call} == {value}",
)


def _a_word(rng: Random) -> str:
    quote = rng.choice("'\"")
    return f"{quote}{syllables(rng, 1, 3)}{quote}"


def _listed(draw: Callable[[Random], str]) -> Callable[[Random], str]:
    def drawn(rng: Random) -> str:
        left, right = rng.choice(("[]", "[]", "[]", "()"))
        return f"{left}{', '.join(draw(rng) for _ in range(rng.randint(2, 6)))}{right}"

    return drawn


_LITERALS: tuple[Callable[[Random], str], ...] = (
    lambda rng: str(rng.randint(-9, 200)),
    lambda rng: str(rng.randint(0, 20)),
    lambda rng: rng.choice(("True", "False")),
    lambda rng: f"{rng.randint(0, 40)}.{rng.randint(1, 99)}",
    _a_word,
    _a_word,
    _listed(lambda rng: str(rng.randint(-20, 99))),
    _listed(lambda rng: str(rng.randint(0, 9))),
    _listed(_a_word),
    _listed(_listed(lambda rng: str(rng.randint(0, 9)))),
    lambda rng: f"{{{_a_word(rng)}: {rng.randint(0, 9)}, {_a_word(rng)}: {rng.randint(0, 9)}}}",
)
"""Draw the text of a value."""
