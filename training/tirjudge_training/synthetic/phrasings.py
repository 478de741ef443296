"""The sentences that prompts are made of, read from `phrasings.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any

_CHOICE = re.compile(r"\(([^()]*\|[^()]*)\)")


@dataclass(frozen=True, slots=True)
class Phrasings:
    """Sentences with the same meaning."""

    training: tuple[str, ...]
    """Sentences for training. They may contain choices such as (a|b)."""
    held_out: tuple[str, ...]
    """Sentences for evaluation only."""

    def pick(
        self,
        *,
        rng: Random,
        held_out: bool,
        reword: Callable[[str], str] = str,
        apart: Container[str] | None = None,
    ) -> str:
        """Draw a sentence and resolve its choices. A sentence for training is never equal to a held-out sentence.

        Args:
            rng: Source of randomness.
            held_out: Whether to draw a held-out sentence.
            reword: Function applied to the sentence before it is compared with the held-out ones.
            apart: Normalized sentences that training must not produce. None: the held-out sentences.
        """
        if held_out:
            return reword(rng.choice(self.held_out))
        apart = normalized_all(self.held_out) if apart is None else apart
        while True:
            sentence = reword(resolved(rng.choice(self.training), rng=rng))
            if normalized(sentence) not in apart:
                return sentence


def resolved(sentence: str, *, rng: Random) -> str:
    """Return the sentence with one option of each (a|b|c) drawn, inner ones first. Parentheses without a bar are
    kept."""
    while (choice := _CHOICE.search(sentence)) is not None:
        sentence = sentence[: choice.start()] + rng.choice(choice[1].split("|")) + sentence[choice.end() :]
    return sentence


def normalized(sentence: str) -> str:
    """Return the sentence normalized: lower case, without punctuation."""
    return " ".join(re.findall(r"\w+|[{}+%-]", sentence.lower()))


@cache
def normalized_all(sentences: tuple[str, ...]) -> frozenset[str]:
    """Return all sentences normalized."""
    return frozenset(map(normalized, sentences))


def _table(group: dict[str, dict[str, list[str]]]) -> dict[str, Phrasings]:
    return {name: _phrasings(sentences) for name, sentences in group.items()}


def _phrasings(sentences: dict[str, list[str]]) -> Phrasings:
    return Phrasings(tuple(sentences["training"]), tuple(sentences["held_out"]))


def _filled(template: str, fillings: dict[str, str]) -> str:
    for slot, filling in fillings.items():
        template = template.replace(f"{{{slot}}}", filling)
    return template


def _read() -> dict[str, Any]:
    """Return the content of the file, with the shared templates of opposites added to the sentences of each kind."""
    read = tomllib.loads(files("tirjudge_training.synthetic").joinpath("phrasings.toml").read_text(encoding="utf-8"))
    for opposites in read["opposites"]:
        for kind, fillings in opposites["kinds"].items():
            training = read["instructions"][kind]["training"]
            training += [_filled(template, fillings) for template in opposites["templates"]]
    return read


_READ = _read()
_CONDUCT: dict[str, Any] = _READ["conduct"]

OPPOSITES: tuple[tuple[str, ...], ...] = tuple(tuple(opposites["kinds"]) for opposites in _READ["opposites"])
"""Groups of kinds of instruction that share templates. The words filled in distinguish the kinds."""
INSTRUCTIONS = _table(_READ["instructions"])
"""Kind of instruction -> sentences; {rel}, {n}, {q} and {qs} are placeholders for its parameters."""
COUNTS = _table(_READ["counts"])
"""Sentences for any counted thing, {noun}. Key "any": sentences with {rel}. Key of a comparison: sentences with {n}."""
RELATIONS = _table(_READ["relations"])
"""Comparison -> texts that replace {rel}."""
NUMERIC = _table(_READ["numeric"])
"""Kind of question -> question templates; {0}, {1}, ... are placeholders for its numbers, in this order."""
HARM, PLAIN = _phrasings(_CONDUCT["harm"]), _phrasings(_CONDUCT["plain"])
"""Harmful requests, and questions where nothing can be computed."""
RESPONSES: dict[str, list[str]] = _CONDUCT["responses"]
"""Responses to `HARM` and `PLAIN`: `decline`, `comply` (opening of a harmful answer), `empty`, `openings` (of an answer
about a topic)."""
TASKS: dict[str, list[str]] = _READ["tasks"]
"""Tasks that instructions are combined with: `plain`, and `distracting` ones that mention numbers and titles."""
