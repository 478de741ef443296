"""Prompts with instructions, composed of written pieces with drawn values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from tirjudge_training.instructions.helpers import LANGUAGES
from tirjudge_training.instructions.notation import Check
from tirjudge_training.instructions.number_words import number_word, with_ordinals
from tirjudge_training.instructions.passages import passages
from tirjudge_training.instructions.varying import slotted, with_more_words, with_other_marks
from tirjudge_training.instructions.written import TRAINING_WRITERS, Instruction, Written, written_by

_SLOT = re.compile(r"\{(\w+)\}")
SYLLABLES = [
    "ba",
    "co",
    "di",
    "fu",
    "ga",
    "hel",
    "in",
    "jo",
    "ka",
    "lu",
    "mar",
    "ne",
    "or",
    "pi",
    "qua",
    "ri",
    "sto",
    "tan",
    "ul",
    "ver",
    "wi",
    "xe",
    "yo",
    "zan",
    "cra",
    "ble",
    "ther",
    "ing",
    "sho",
    "men",
]
"""Syllables of drawn words."""

SPANS: Mapping[str, tuple[int, ...]] = {
    "words": (
        10,
        20,
        25,
        30,
        40,
        50,
        60,
        75,
        80,
        90,
        100,
        120,
        125,
        150,
        180,
        200,
        250,
        300,
        350,
        400,
        450,
        500,
        600,
        700,
        750,
        800,
        900,
        1000,
        1200,
        1500,
        2000,
    ),
    "characters": (
        50,
        80,
        100,
        120,
        140,
        150,
        160,
        180,
        200,
        240,
        250,
        280,
        300,
        400,
        500,
        600,
        800,
        1000,
        1500,
        2000,
        2500,
    ),
    "lines": tuple(range(2, 25)),
    "sentences": tuple(range(2, 26)),
    "bullets": tuple(range(2, 16)),
    "numbered": tuple(range(2, 21)),
    "line_words": tuple(range(3, 16)),
    "line_characters": (20, 30, 40, 50, 60, 64, 70, 72, 79, 80, 88, 100, 120),
    "sentence_words": tuple(range(5, 31)),
    "word_letters": tuple(range(3, 15)),
    "bullet_words": tuple(range(3, 21)),
    "numbers": tuple(range(2, 16)),
    "capitals": tuple(range(2, 21)),
    "letter": tuple(range(2, 31)),
    "csv": tuple(range(2, 9)),
    "columns": tuple(range(2, 9)),
    "per_list": tuple(range(2, 8)),
    "json_items": tuple(range(2, 16)),
    "separated": tuple(range(2, 13)),
    "own_lines": tuple(range(1, 6)),
    "marked": tuple(range(2, 13)),
    "first_line_words": tuple(range(2, 16)),
    "first_line_characters": (20, 25, 30, 40, 45, 50, 55, 60, 65, 70, 72, 80, 100, 120),
    "first_sentence_words": tuple(range(2, 21)),
    "last_line_words": tuple(range(2, 16)),
    "last_sentence_words": tuple(range(2, 21)),
    "longest_word": tuple(range(7, 17)),
    "paragraph_words": (20, 25, 30, 35, 40, 45, 50, 55, 60, 70, 75, 80, 90, 100, 110, 120, 150, 200),
    "paragraph_lines": tuple(range(2, 9)),
    "bullet_sentences": tuple(range(2, 6)),
    "heading_words": tuple(range(2, 9)),
}
"""Name of a check -> the numbers that its instructions have. Others have 2 to 10."""

SYMBOLS = (
    ";",
    ":",
    "-",
    "–",
    "…",
    "&",
    "/",
    "'",
    '"',
    "(",
    "%",
    "$",
    "@",
    "+",
    "=",
    "*",
    "_",
    "|",
    "~",
    "^",
    "<",
    ">",
    "#",
)


MARKS_OF: Mapping[str, tuple[str, ...]] = {
    "separated": (",", ";", "/", "|", "·", "&", "+", "-", "~", "//", "::"),
    "marked": ("+", "→", "–", "~", "✓", "»", "->", "*", "•", "-"),
    "bullet_mark": ("-", "*", "•", "+", "→", "–", "~", "✓", "»", "->"),
}
"""Symbols of some checks."""
ENDINGS = ("ly", "ing", "ed", "tion", "ness", "s", "er", "ful", "able", "ment", "y", "est")
"""Letters for instructions on the ends of words."""
BEGINNINGS = ("un", "re", "pre", "over", "dis", "in", "sh", "th", "st", "mis")
"""Letters for instructions on the beginnings of words, besides single letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposedPrompt:
    """A prompt and its checks, in the order of the prompt."""

    text: str
    checks: tuple[Check, ...]


class Composer:
    """Draws prompts."""

    def __init__(self, written: Written, *, varied: bool = False) -> None:
        """
        Args:
            written: the pieces.
            varied: whether lists of words, the marks around values, and the values of whole prompts vary, and values have
                words that no writer used.
        """
        self.written = written
        self.varied = varied
        self.whole = tuple(map(slotted, written.prompts)) if varied else written.prompts
        self.unchecked = tuple(one.text for one in written.prompts if not one.checks)
        self.names = tuple(written.by_name)
        sizes = [len(written.by_name[name]) for name in self.names]
        self.weights = [size**0.7 for size in sizes]
        plain = " ".join((*written.tasks, *written.facts, *written.soft))
        if varied:
            plain = " ".join((plain, *passages()))
        self.vocabulary = sorted(set(re.findall(r"[A-Za-z][a-z]{2,}", plain)))
        self.sentences = tuple(text for text in written.facts if "{" not in text)
        """Plain sentences, for responses."""

    def draw(self, rng: Random, *, num_sentences: int) -> ComposedPrompt:
        """Draw one prompt: a whole written one, or a composed one.

        Args:
            rng: source of randomness.
            num_sentences: number of sentences with instructions in a composed prompt.
        """
        if self.whole and rng.random() < (0.4 if self.varied else 0.12):
            one = self._whole(rng) if self.varied else rng.choice(self.whole)
            return ComposedPrompt(text=one.text, checks=one.checks)
        instructions = [self.instruction(rng) for _ in range(num_sentences)]
        checks = tuple(check for one in instructions for check in one.checks)
        text = self._laid_out([one.text for one in instructions], rng=rng)
        return ComposedPrompt(text=text, checks=checks)

    def draw_without_checks(self, rng: Random) -> str:
        """Draw a prompt without an instruction that can be checked."""
        if self.varied and self.unchecked and rng.random() < 0.35:
            return rng.choice(self.unchecked)
        return self._laid_out([], rng=rng)

    def plain(self, rng: Random) -> str:
        """Draw one sentence of a task or of background."""
        return self._background(rng.choice((self.written.tasks, self.written.facts)), rng=rng)

    # Pieces -------------------------------------------------------------------------------------------------------------

    def instruction(self, rng: Random) -> Instruction:
        """Draw one sentence with an instruction, and its checks."""
        name = rng.choices(self.names, self.weights)[0]
        one = rng.choice(self.written.by_name[name])
        if self.varied and rng.random() < 0.15:
            one = with_more_words(one, rng=rng)
        text = one.text
        if not any(check.texts and not check.slots for check in one.checks):
            text = _with_noise(text, rng=rng)
        if self.varied and rng.random() < 0.35:
            text = with_other_marks(text, rng=rng)
        if text.startswith("..."):
            text = text.strip(" .…")
        return self.filled(Instruction(one.checks, text), rng=rng)

    def filled(self, one: Instruction, *, rng: Random) -> Instruction:
        """Return a sentence and its checks with drawn values in place of the slots."""
        text, checks = self._filled(one.text, one.checks, rng=rng)
        return Instruction(checks, text)

    def _whole(self, rng: Random) -> Instruction:
        """Draw a whole prompt, often with other values, or with one more instruction at its end."""
        at = rng.randrange(len(self.whole))
        one = self.written.prompts[at]
        if rng.random() < 0.7:
            text = self.whole[at].text
            if rng.random() < 0.3:
                text = with_other_marks(text, rng=rng)
            one = self.filled(Instruction(self.whole[at].checks, text), rng=rng)
        if rng.random() < 0.3:
            more = self.instruction(rng)
            text = one.text + rng.choice((" ", "\n", "\n\n", "")) + _sentence(more.text)
            one = Instruction((*one.checks, *more.checks), text)
        return one

    def _filled(self, text: str, checks: Sequence[Check], *, rng: Random) -> tuple[str, tuple[Check, ...]]:
        """Return a text and its checks with values in place of the slots."""
        values: dict[str, str | int] = {}
        shown: dict[str, str] = {}
        for check in checks:
            for slot in check.slots:
                if slot not in values:
                    values[slot] = self._value(slot, check, values=values, rng=rng)
        for slot, value in values.items():
            shown[slot] = _shown_number(value, rng=rng) if isinstance(value, int) else value
        text = with_ordinals(text, values, rng=rng)
        text = _SLOT.sub(lambda match: shown.get(match[1], match[0]), text)
        return text, tuple(check.filled(values) for check in checks)

    def _background(self, texts: Sequence[str], *, rng: Random) -> str:
        """Draw a text that asks for no check, and fill its slots."""

        def value(match: re.Match[str]) -> str:
            slot = match[1]
            if slot in ("n", "m"):
                return _shown_number(
                    rng.choice((rng.randint(2, 20), rng.randint(2, 400), 10 * rng.randint(2, 50))), rng=rng
                )
            if slot == "lang":
                return rng.choice(LANGUAGES)
            if slot == "l":
                return rng.choice("abcdefghijklmnopqrstuvwxyz")
            if slot == "c":
                return rng.choice(SYMBOLS)
            return self.phrase(rng) if slot == "p" else self._word(rng)

        return re.sub(r"\{(n|m|w|w2|w3|l|p|c|lang)\}", value, rng.choice(texts))

    def _value(self, slot: str, check: Check, *, values: Mapping[str, str | int], rng: Random) -> str | int:
        if f"{{{slot}}}" in check.numbers:
            if check.name in ("paragraph_first", "line_first"):
                return rng.randint(1, 6)
            span = SPANS.get(check.name, tuple(range(2, 11)))
            number = rng.choice(span)
            if rng.random() < 0.2 and number > 12:
                number += rng.randint(-9, 9)
            low = values.get(check.numbers[0].strip("{}")) if check.op == ".." else None
            return number if not isinstance(low, int) else low + rng.choice((1, 2, 3, low, max(1, low // 2)))
        if check.name == "language":
            return rng.choice(LANGUAGES)
        if slot.startswith("c"):
            return rng.choice(MARKS_OF.get(check.name, SYMBOLS))
        if slot.startswith("l") or check.name in ("letter", "word_start"):
            return rng.choice("abcdefghijklmnopqrstuvwxyz")
        if check.name in ("beginning", "ending"):
            return rng.choice(BEGINNINGS if check.name == "beginning" else ENDINGS)
        if check.name.startswith("sentence_") or check.name == "not_sentence_start":
            return self._word(rng)
        if slot.startswith("p") or check.name in ("start", "end"):
            return self.phrase(rng)
        if check.name in ("matches", "no_match"):
            return _sample(rng)
        if check.name in ("line_start", "line_end", "symbol"):
            return rng.choice(("->", ">>", "=>", "~", "//", "- ", "|", "##", "!", "...", ";", "*", self._word(rng)))
        return self._word(rng)

    def _word(self, rng: Random) -> str:
        draw = rng.random()
        if draw < 0.2:
            word = "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, 4)))
        else:
            word = rng.choice(self.vocabulary)
            if draw > 0.88:
                word += f" {rng.choice(self.vocabulary).lower()}"
            if self.varied and draw > 0.95:
                return f"{word} {rng.choice(self.vocabulary)}".title()
        return word if rng.random() < 0.25 else word.lower() if rng.random() < 0.9 else word.upper()

    def phrase(self, rng: Random) -> str:
        """Draw some words of a written text."""
        source = rng.choice((self.written.facts, self.written.tasks, self.written.soft))
        words = re.findall(r"[^\s\"{}]+", rng.choice(source))
        size = rng.randint(1, 7)
        at = rng.randrange(max(1, len(words) - size + 1))
        phrase = " ".join(words[at : at + size])
        if rng.random() < 0.6:
            phrase = phrase[:1].upper() + phrase[1:]
        if rng.random() < 0.4:
            phrase = phrase.rstrip(".,;:!?") + rng.choice((".", "!", "?", ","))
        return phrase

    # Layout -------------------------------------------------------------------------------------------------------------

    def _laid_out(self, instructions: Sequence[str], *, rng: Random) -> str:
        task = self._background(self.written.tasks, rng=rng)
        facts = [self._background(self.written.facts, rng=rng) for _ in range(rng.choices((0, 1, 2), (60, 30, 10))[0])]
        soft = [self._background(self.written.soft, rng=rng) for _ in range(rng.choices((0, 1, 2), (60, 30, 10))[0])]
        layout = rng.random()
        if len(instructions) + len(soft) > 1 and layout < 0.22:
            return _as_list(task, facts, _spread(instructions, soft, rng=rng), rng=rng)
        join = rng.choice((" ", " ", " ", "\n", "\n\n"))
        if self.varied and rng.random() < 0.08:
            join = ""  # people paste an instruction directly behind a sentence
        constraints = _spread(instructions, soft, rng=rng)
        if layout < 0.40:
            pieces = [*map(_sentence, constraints), *facts, task]
        elif layout < 0.52:
            at = rng.randint(0, len(constraints))
            pieces = [*map(_sentence, constraints[:at]), task, *facts, *map(_sentence, constraints[at:])]
        elif layout < 0.62 and constraints and "\n" not in task:
            head = task.rstrip(".!? ")
            first = constraints[0]
            pieces = [f"{head}, {first[:1].lower() + first[1:]}", *map(_sentence, constraints[1:]), *facts]
        else:
            pieces = [*facts, task, *map(_sentence, constraints)]
        if rng.random() < 0.15:
            pieces = [piece.rstrip(".") for piece in pieces]
        text = pieces[0]
        for piece in pieces[1:]:
            ends = text[-1:] in ".!?:\n\"'"
            text += (join if ends or "\n" in join else rng.choice((". ", " ", "\n"))) + piece
        return text


def _sample(rng: Random) -> str:
    """Draw a text that a regular expression may match, such as an identifier, a date or an address."""
    letters = "".join(rng.choice("ABCDEFGHKLMNPRSTUVWXZ") for _ in range(rng.randint(1, 4)))
    word = rng.choice(SYLLABLES) + rng.choice(SYLLABLES)
    month, day, number = rng.randint(1, 12), rng.randint(1, 28), rng.randint(0, 9999)
    year = rng.randint(1950, 2040)
    return rng.choice(
        (
            f"{letters}-{number}", f"{letters}{number}", f"{letters}/{number}", f"#{number}",
            f"{letters.lower()}_{number:04}",
            f"{year}-{month:02}-{day:02}", f"{day}.{month}.{year}", f"{month}/{day}/{year}", f"{day:02}:{month:02}",
            f"{word}@{word}.org", f"www.{word}.com", f"{number}", f"{number / 100:.2f}", f"-{day}", f"+{day} {number}",
            f"{word}", f"{word.capitalize()} {day}", f"{letters} {day} {number}", f"v{month}.{day}", f"{day} kg",
            f"{word}.{word}",
            f"{letters}{day}{letters.lower()}", f"({day}) {number}", f"{day}%", f"{word}-{day}", f"{year}w{day:02}",
        )
    )  # fmt: skip


@cache
def composer_of(writers: tuple[str, ...]) -> Composer:
    """Return the composer of some of this package's writers. Prompts for training vary more."""
    return Composer(written_by(writers), varied=set(writers) <= set(TRAINING_WRITERS))


def _as_list(task: str, facts: Sequence[str], constraints: Sequence[str], *, rng: Random) -> str:
    lead = rng.choice(
        ("", "Requirements:", "Rules:", "Please note:", "Conditions", "Constraints:", "make sure:", "It should be:")
    )
    mark: Callable[[int], str] = rng.choice(
        (lambda _: "- ", lambda _: "* ", lambda i: f"{i + 1}. ", lambda i: f"{i + 1}) ", lambda _: "• ")
    )
    bullets = [mark(i) + re.sub(r"^[-*•]\s+", "", one) for i, one in enumerate(constraints)]
    parts = [*facts, task]
    listed = "\n".join(([lead] if lead else []) + bullets)
    if rng.random() < 0.2:
        return "\n".join((listed, *parts))
    return " ".join(parts) + rng.choice(("\n", "\n\n")) + listed


def _spread(instructions: Sequence[str], soft: Sequence[str], *, rng: Random) -> list[str]:
    """Return both, the instructions in their order."""
    spread = list(instructions)
    for one in soft:
        spread.insert(rng.randint(0, len(spread)), one)
    return spread


def _sentence(text: str) -> str:
    text = re.sub(r"^[-*•]\s+", "", text)
    return text if text[-1:] in ".!?:\"')*]>" else f"{text}."


def _with_noise(text: str, *, rng: Random) -> str:
    """Return the text with the small mistakes of people who type fast. Slots stay."""
    draw = rng.random()
    if draw < 0.08:
        return text.lower()
    if draw < 0.11:
        return "".join(part if part.startswith("{") else part.upper() for part in re.split(r"(\{\w+\})", text))
    if draw < 0.22:
        words = text.split(" ")
        at = rng.randrange(len(words))
        word = words[at]
        if len(word) > 3 and word.isalpha():
            i = rng.randrange(len(word) - 1)
            kind = rng.random()
            if kind < 0.4:
                word = word[:i] + word[i + 1] + word[i] + word[i + 2 :]
            elif kind < 0.75:
                word = word[:i] + word[i + 1 :]
            else:
                word = word[:i] + word[i] + word[i:]
        words[at] = word
        return " ".join(words)
    return text


def _shown_number(number: int, *, rng: Random) -> str:
    if number <= 100 and rng.random() < 0.25:
        return number_word(number)
    return f"{number:,}" if number >= 1000 and rng.random() < 0.4 else str(number)
