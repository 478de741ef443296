"""The written sentences: one folder per writer.

A language model wrote each set in the role of one writer, sentence by sentence, without templates and without sight of
the other sets.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tirjudge_training.instructions.notation import Check, parse_checks

TRAINING_WRITERS = ("ada", "bo", "cleo", "eve")
HELD_OUT_WRITERS = ("dov",)
"""Writers whose texts are for evaluation only."""

_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Instruction:
    """A sentence with the checks that it asks for. Slots in the sentence stand for the values of its checks."""

    checks: tuple[Check, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Everything that some writers wrote."""

    by_name: dict[str, tuple[Instruction, ...]]
    """Name of a check -> the sentences whose first check it is."""
    prompts: tuple[Instruction, ...]
    """Whole prompts with literal values."""
    tasks: tuple[str, ...]
    """Requests without an instruction that can be checked."""
    soft: tuple[str, ...]
    """Instructions that no program can check."""
    facts: tuple[str, ...]
    """Background that is no instruction."""
    refused: tuple[str, ...] = ()
    """Lines that are not valid, with the reason."""


@cache
def written_by(writers: tuple[str, ...]) -> Written:
    """Return everything that some of this package's writers wrote. Held-out sentences that a training writer also wrote are
    left out.

    Raises:
        ValueError: a line is not valid.
    """
    written = read_written([Path(__file__).parent / "writers" / name for name in writers])
    if written.refused:
        raise ValueError(f"writers: {written.refused[0]}")
    if not set(writers) <= set(HELD_OUT_WRITERS):
        return written
    known = {normalized(one.text) for each in written_by(TRAINING_WRITERS).by_name.values() for one in each}
    by_name = {
        name: tuple(one for one in each if normalized(one.text) not in known) for name, each in written.by_name.items()
    }
    return replace(written, by_name=by_name)


def normalized(text: str) -> str:
    """Return the words and slots of a text in lower case, joined by blanks."""
    return " ".join(re.findall(r"\w+|[{}]", text.lower()))


def read_written(folders: Sequence[Path]) -> Written:
    """Read the files of some writers. Lines that are not valid are left out and reported."""
    by_name: dict[str, list[Instruction]] = defaultdict(list)
    prompts: list[Instruction] = []
    plain: dict[str, list[str]] = {"tasks": [], "soft": [], "facts": []}
    refused: list[str] = []
    for folder in folders:
        for line in _lines(folder / "sentences.txt"):
            try:
                one = _instruction(*line.split(" | ", 1))
            except (ValueError, TypeError) as error:
                refused.append(f"{line}: {error}")
            else:
                by_name[one.checks[0].name].append(one)
        for block in re.split(r"(?m)^---\s*$", _text(folder / "prompts.txt")):
            if block.strip():
                try:
                    first, _, text = block.strip().partition("\n")
                    prompts.append(Instruction(parse_checks(first.removeprefix("#").strip()), text.strip()))
                except ValueError as error:
                    refused.append(f"{block.strip()[:80]}: {error}")
        for name, lines in plain.items():
            lines += [line.replace("\\n", "\n") for line in _lines(folder / f"{name}.txt")]
    return Written(
        by_name={name: tuple(found) for name, found in by_name.items()},
        prompts=tuple(prompts),
        tasks=tuple(plain["tasks"]),
        soft=tuple(plain["soft"]),
        facts=tuple(plain["facts"]),
        refused=tuple(refused),
    )


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _lines(path: Path) -> list[str]:
    return [line.strip() for line in _text(path).splitlines() if line.strip() and not line.startswith("##")]


def _instruction(notation: str, text: str) -> Instruction:
    checks = parse_checks(notation)
    asked = {slot for check in checks for slot in check.slots}
    shown = set(_SLOT.findall(text))
    if asked != shown:
        raise ValueError(f"slots {sorted(asked)} in the checks, {sorted(shown)} in the sentence")
    if not checks:
        raise ValueError("no check")
    return Instruction(_in_order(checks, text), text.strip())


def _in_order(checks: tuple[Check, ...], text: str) -> tuple[Check, ...]:
    """Return the checks in the order of their values in the text, if each has one there."""
    places = [
        min((text.find(value) for value in (*check.numbers, *check.texts) if value in text), default=-1)
        for check in checks
    ]
    if -1 in places:
        return checks
    return tuple(check for _, check in sorted(zip(places, checks, strict=True), key=lambda pair: pair[0]))
