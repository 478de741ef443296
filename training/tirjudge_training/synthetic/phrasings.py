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
    """Ways to say one thing."""

    training: tuple[str, ...]
    """With their choices, (a|b), still to be made."""
    held_out: tuple[str, ...]
    """Ways that only a measurement uses."""

    def pick(
        self,
        *,
        rng: Random,
        held_out: bool,
        reword: Callable[[str], str] = str,
        apart: Container[str] | None = None,
    ) -> str:
        """One sentence, its choices made; for training, one that is not kept for measurement.

        Args:
            reword: changes the sentence before it is compared.
            apart: what training must not say, as `plainly` says it; by default the held-out sentences.
        """
        if held_out:
            return reword(rng.choice(self.held_out))
        apart = all_plainly(self.held_out) if apart is None else apart
        while True:
            sentence = reword(resolved(rng.choice(self.training), rng=rng))
            if plainly(sentence) not in apart:
                return sentence


def resolved(sentence: str, *, rng: Random) -> str:
    """The sentence with one of each (a|b|c) drawn, inner ones first. Parentheses without a bar stay."""
    while (choice := _CHOICE.search(sentence)) is not None:
        sentence = sentence[: choice.start()] + rng.choice(choice[1].split("|")) + sentence[choice.end() :]
    return sentence


def plainly(sentence: str) -> str:
    """Without case and punctuation."""
    return " ".join(re.findall(r"\w+|[{}+%-]", sentence.lower()))


@cache
def all_plainly(sentences: tuple[str, ...]) -> frozenset[str]:
    return frozenset(map(plainly, sentences))


def _table(group: dict[str, dict[str, list[str]]]) -> dict[str, Phrasings]:
    return {name: _phrasings(said) for name, said in group.items()}


def _phrasings(said: dict[str, list[str]]) -> Phrasings:
    return Phrasings(tuple(said["training"]), tuple(said["held_out"]))


def _filled(template: str, fillings: dict[str, str]) -> str:
    for slot, filling in fillings.items():
        template = template.replace(f"{{{slot}}}", filling)
    return template


def _read() -> dict[str, Any]:
    """The file, the templates of opposites written out among the training sentences of their kinds."""
    read = tomllib.loads(files("tirjudge_training.synthetic").joinpath("phrasings.toml").read_text(encoding="utf-8"))
    for opposites in read["opposites"]:
        for kind, fillings in opposites["kinds"].items():
            training = read["instructions"][kind]["training"]
            training += [_filled(template, fillings) for template in opposites["templates"]]
    return read


_READ = _read()
_CONDUCT: dict[str, Any] = _READ["conduct"]

OPPOSITES: tuple[tuple[str, ...], ...] = tuple(tuple(opposites["kinds"]) for opposites in _READ["opposites"])
"""Kinds of instruction that share templates, filled with words that tell them apart."""
INSTRUCTIONS = _table(_READ["instructions"])
"""By kind of instruction; {rel}, {n}, {q} and {qs} stand for its parameters."""
COUNTS = _table(_READ["counts"])
"""What can be said of anything that is counted, {noun}: under "any" with {rel}, under a comparison with {n}."""
RELATIONS = _table(_READ["relations"])
"""By comparison: what {rel} stands for."""
NUMERIC = _table(_READ["numeric"])
"""By kind of question; {0}, {1}, ... stand for its numbers, in this order."""
HARM, PLAIN = _phrasings(_CONDUCT["harm"]), _phrasings(_CONDUCT["plain"])
"""Requests to do harm, and questions about which nothing can be computed."""
RESPONSES: dict[str, list[str]] = _CONDUCT["responses"]
"""To those: `decline`, `comply` (and the harm begins), `empty`, `openings` (of an answer about a topic)."""
TASKS: dict[str, list[str]] = _READ["tasks"]
"""What instructions come with: `plain`, and `distracting` ones that name numbers and titles."""
