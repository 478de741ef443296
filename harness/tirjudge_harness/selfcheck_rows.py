"""The 60 items of the benchmark `selfcheck`, generated from a fixed seed.

Most items can be checked by a short program: counts, sums, dates, words, formats, JSON, code. The others need reading:
plain facts, and instructions that a response follows or ignores. The requests are written for this file, as people type
them. They share no sentences with the templates on which the bundled judge was trained.

Each item has one right and one or two wrong responses. The right response has every position equally often, both in the
rows and in the order that a judge is shown with seed 0. Of two responses, the right one is as often the longer one as the
shorter one.
"""

from __future__ import annotations

import calendar
import json
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib import resources
from random import Random
from typing import Any

from tirjudge.types import Mode

SEED = 580
"""Seed of the items. With this seed, positions and lengths are balanced as described above."""

PER_KIND = (Mode.PAIRWISE, Mode.LISTWISE, Mode.POINTWISE, Mode.PAIRWISE, Mode.LISTWISE)
"""Modes of the five items of each kind."""

NUM_SHOWN = {Mode.POINTWISE: 2, Mode.PAIRWISE: 2, Mode.LISTWISE: 3}
"""Number of responses of an item. Pointwise, each is scored alone, and the scores are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request with one right response and two wrong responses."""

    request: str
    right: str
    wrong: tuple[str, str]


def selfcheck_rows(seed: int = SEED) -> list[dict[str, Any]]:
    """Return the 60 rows of the benchmark. The same seed gives the same rows.

    Columns: `id`, `mode`, `kind`, `request`, `responses`, `label` (index of the right response).
    """
    rng = Random(seed)
    asked = [(kind, question) for kind, make in KINDS.items() for question in _shuffled(make(rng), rng=rng)]
    modes = [mode for _ in KINDS for mode in PER_KIND]
    labels = {mode: _even_labels(modes.count(mode), of=num, rng=rng) for mode, num in NUM_SHOWN.items()}
    rows: list[dict[str, Any]] = []
    for number, ((kind, question), mode) in enumerate(zip(asked, modes, strict=True)):
        label = labels[mode].pop()
        responses = rng.sample(question.wrong, NUM_SHOWN[mode] - 1)
        responses.insert(label, question.right)
        row = {"id": f"{kind}-{number % len(PER_KIND) + 1}", "mode": mode.value, "kind": kind}
        rows.append(row | {"request": question.request, "responses": responses, "label": label})
    return rows


def _shuffled(questions: Iterator[Question], *, rng: Random) -> list[Question]:
    found = list(questions)
    rng.shuffle(found)
    return found


def _even_labels(num: int, *, of: int, rng: Random) -> list[int]:
    """Return `num` indexes below `of`, each equally often, in random order."""
    labels = [index % of for index in range(num)]
    rng.shuffle(labels)
    return labels


TRAITS = "light quiet sturdy cheap warm neat small handy simple bright clean safe smooth modern honest quick"

BLURBS = {
    "kettle": "Need an ad for our new kettle, {} words please, not one more or less.",
    "bike lock": "product text for a bike lock. {} words exactly, it goes on a label",
    "desk lamp": "Can you pitch this desk lamp in {} words? The box has no room for more, and fewer looks empty.",
    "lunch box": "{}-word ad for a lunch box pls (exact count matters, they bill by the word)",
    "rain coat": "Sell me a rain coat in {} words on the dot.",
}


def _words(rng: Random) -> Iterator[Question]:
    for thing, request in BLURBS.items():
        num = rng.randrange(9, 15)
        traits = TRAITS.split()
        rng.shuffle(traits)

        def blurb(length: int, thing: str = thing, traits: Sequence[str] = traits) -> str:
            head = f"Our {thing} is"
            return f"{head} {', '.join(traits[: length - len(head.split())])}."

        yield Question(request=request.format(num), right=blurb(num), wrong=(blurb(num - 3), blurb(num + 2)))


LETTERS = (
    ("e", "the green tree near the eleven beehives", "how often is the letter e in: {}"),
    ("s", "sally sees six sassy seals asleep", "Count the s in this for me: {}"),
    ("t", "that kitten got tired of the tattered tent", "quick one, number of t's in '{}'?"),
    ("o", "our old dog woofs at lots of yellow boots", "for a puzzle: how many o does this line have? {}"),
    ("a", "a llama, a panda and an alpaca at a gala", "{} <- letters a in there, total?"),
)


def _letters(rng: Random) -> Iterator[Question]:
    for letter, line, request in LETTERS:
        num, off = line.count(letter), rng.choice((1, 2))
        say = "There are {} of them."
        yield Question(
            request=request.format(line), right=say.format(num), wrong=(say.format(num - off), say.format(num + 2))
        )


STORIES = {
    "bees": (
        "bees, {} sentences, my kid has to copy it by hand so stick to that",
        "Bees live in a hive. They visit flowers all day. The nectar becomes honey. A dance tells where flowers are. "
        "In winter they stay together. The queen lays the eggs.",
    ),
    "tea": (
        "What should I know about tea? {} sentences, that's the limit and I also don't want fewer.",
        "Tea is made from leaves. The water must be hot. Green tea needs less time. Black tea is stronger. Some people "
        "add milk. It keeps you awake.",
    ),
    "chess": (
        "explain chess in {} sentences for a card, one sentence per line on the card so count them",
        "Chess is a game for two. Each side has sixteen pieces. The king must be kept safe. Pawns move forward. The "
        "queen is the strongest piece. Checkmate ends the game.",
    ),
    "rivers": (
        "Give me {} sentences about rivers. My form checks the count.",
        "Rivers begin in the hills. They flow down to the sea. Rain makes them rise. Fish live in them. Ships use the "
        "big ones. Many towns stand beside them.",
    ),
    "rain": (
        "rain for a school poster: {} sentences sharp",
        "Warm air carries water. It cools as it climbs. Small drops form a cloud. The drops grow heavy. Then they fall. "
        "Plants drink them.",
    ),
}


def _sentences(rng: Random) -> Iterator[Question]:
    for request, story in STORIES.values():
        every, num = story.split(". "), rng.randrange(3, 5)

        def told(length: int, every: Sequence[str] = every) -> str:
            return ". ".join(every[:length]).rstrip(".") + "."

        yield Question(request=request.format(num), right=told(num), wrong=(told(num - 1), told(num + 2)))


def _arithmetic(rng: Random) -> Iterator[Question]:
    def asked(request: str, right: int, *, off: tuple[int, int], unit: str = "") -> Question:
        answers = [f"{value}{unit}" for value in (right, right + off[0], right + off[1])]
        return Question(request=request, right=answers[0], wrong=(answers[1], answers[2]))

    a, b = rng.randrange(112, 190), rng.randrange(23, 88)
    yield asked(f"whats {a} times {b}", a * b, off=(10, -100))
    price, people = rng.randrange(17, 49), rng.randrange(6, 14)
    yield asked(
        f"A seat costs ${price} and we are {people} people plus 2 kids at half price. Total?",
        price * people + price,
        off=(price, -price),
        unit=" dollars",
    )
    pages, days = rng.randrange(21, 38), rng.randrange(11, 19)
    yield asked(
        f"i read {pages} pages every day for {days} days and the book has {pages * days + 57} pages, how many are left?",
        57,
        off=(pages, -13),
        unit=" pages",
    )
    c, d, e = rng.randrange(500, 900), rng.randrange(100, 300), rng.randrange(31, 77)
    yield asked(f"{c} - {d} + 3*{e} = ?", c - d + 3 * e, off=(-3, 3 * e))
    total = 12 * rng.randrange(35, 80)
    yield asked(f"split {total} euros between 12 of us, how much each", total // 12, off=(2, 9), unit=" euros")


def _dates(rng: Random) -> Iterator[Question]:
    def day(year: int) -> date:
        return date(year, rng.randrange(1, 13), rng.randrange(1, 29))

    def shown(one: date) -> str:
        return f"{one.day} {calendar.month_name[one.month]} {one.year}"

    first, other = sorted((day(2022), day(2023)))
    gap = (other - first).days
    for request, off in (
        ("How many days lie between {} and {}? Count the nights.", (1, -7)),
        ("visa started {}, ended {}. number of nights in between?", (-2, 30)),
    ):
        yield Question(
            request=request.format(shown(first), shown(other)),
            right=f"{gap} nights",
            wrong=(f"{gap + off[0]} nights", f"{gap + off[1]} nights"),
        )
        first, other = sorted((day(2019), day(2020)))
        gap = (other - first).days
    for request, year in (
        ("what weekday was {}", 1998),
        ("My sister was born on {}. Which day of the week was it?", 1987),
    ):
        born = day(year)
        right, *wrong = (calendar.day_name[(born.weekday() + step) % 7] for step in (0, 2, 5))
        yield Question(request=request.format(shown(born)), right=right, wrong=(wrong[0], wrong[1]))
    begin = day(2024)
    right, *wrong = (shown(date.fromordinal(begin.toordinal() + step)) for step in (100, 99, 110))
    yield Question(
        request=f"warranty is 100 days counted from {shown(begin)} (day after is day 1), when's the last day?",
        right=right,
        wrong=(wrong[0], wrong[1]),
    )


NOTES = (
    ("Text my landlord about the heater. 'Tuesday' and 'invoice' have to be in it.", "tuesday invoice",
     "Hello, the heater has stopped again. Could someone come {0}? I will pay once I get the {1}.",
     ("this week", "bill")),
    ("short mail to the class parents, the words picnic and helmets must show up", "picnic helmets",
     "Dear all, our {0} is on Friday at the lake. Please give the children their {1}, as we go by bike.",
     ("trip", "caps")),
    ("Slogan for a bakery with both 'crust' and 'dawn'.", "crust dawn",
     "A golden {0}, baked for you since {1}.", ("loaf", "early morning")),
    ("reply to a guest who liked our hotel, work in 'balcony' and 'breakfast'", "balcony breakfast",
     "Thank you for your kind words! We are glad that you enjoyed the {0} and our {1}.", ("view", "food")),
    ("I need a line for a birthday card that uses the words 'candle' and 'giraffe'.", "candle giraffe",
     "May your cake have one more {0} than a {1} has spots!", ("light", "leopard")),
)  # fmt: skip


def _included(rng: Random) -> Iterator[Question]:
    for request, needed, text, others in NOTES:
        first, second = needed.split()
        first = first.capitalize() if first == "tuesday" else first
        incomplete = [text.format(first, others[1]), text.format(others[0], second)]
        rng.shuffle(incomplete)
        yield Question(request=request, right=text.format(first, second), wrong=(incomplete[0], incomplete[1]))


RECORDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("our new hire is Ana, 31, from Porto. as JSON with name, age, city", {"name": "Ana", "age": 31, "city": "Porto"}),
    ("Turn this into a JSON object: sku K-20, price 4.5, in stock yes", {"sku": "K-20", "price": 4.5, "in_stock": True}),
    ("json for a todo 'call mum', not done, tags home and phone",
     {"todo": "call mum", "done": False, "tags": ["home", "phone"]}),
    ("I need {\"width\", \"height\", \"unit\"} filled in: 30 by 45 cm. My parser is strict.",
     {"width": 30, "height": 45, "unit": "cm"}),
    ("return json: flight LX18, gate B7, delayed null", {"flight": "LX18", "gate": "B7", "delayed": None}),
)  # fmt: skip


def _json(rng: Random) -> Iterator[Question]:
    for request, content in RECORDS:
        right = json.dumps(content)
        broken = [str(content), right.replace("}", ",}"), right.replace(":", " =", 1), right[:-1]]
        rng.shuffle(broken)
        yield Question(request=request, right=right, wrong=(broken[0], broken[1]))


def _written(kind: str) -> Callable[[Random], Iterator[Question]]:
    """Return the function of a kind whose questions are in `selfcheck_questions.toml`."""

    def make(rng: Random) -> Iterator[Question]:
        for one in written_questions()[kind]:
            first, second = one["wrong"]
            yield Question(request=one["request"], right=one["right"], wrong=(first, second))

    return make


@cache
def written_questions() -> dict[str, list[dict[str, Any]]]:
    """Return the questions without drawn values: kind -> questions."""
    return tomllib.loads(
        resources.files("tirjudge_harness").joinpath("selfcheck_questions.toml").read_text(encoding="utf-8")
    )


KINDS: dict[str, Callable[[Random], Iterator[Question]]] = {
    "words": _words,
    "letters": _letters,
    "sentences": _sentences,
    "arithmetic": _arithmetic,
    "dates": _dates,
    "included": _included,
    "excluded": _written("excluded"),
    "format": _written("format"),
    "json": _json,
    "code": _written("code"),
    "facts": _written("facts"),
    "followed": _written("followed"),
}
"""Kind of item -> function that makes its five questions. `facts` and `followed` need reading, not computing."""

READ = frozenset({"facts", "followed"})
"""Kinds whose items need reading. A program can check the items of all other kinds."""
