"""Edits of a real response that change whether it follows one instruction of IFEval, and nothing else.

For each of the 25 kinds, a function proposes edits towards following or breaking an instruction. `flipped` takes the
first one that the official rules accept: the verdict on this instruction changes, and that on all others stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from random import Random
from typing import Any

from tirjudge_training.bundled.measuring.google import ANSWERS, OfficialInstructions

MAX_PROPOSALS = 400
"""Maximum number of edits that are tried for one instruction."""

MAX_STEPS = 60
"""Maximum number of equal changes in one edit, such as added sentences."""

_FILLER = re.findall(
    r"\w+", "and it is also good to know that this part of the text says a bit more about the same thing as before"
)
_SENTENCES = ("It works.", "That is so.", "We saw it.", "It is a good thing.")


@dataclass(frozen=True, slots=True, kw_only=True)
class EditAim:
    """What an edit is to change."""

    text: str
    """The response."""
    given: Mapping[str, Any]
    """Arguments of the instruction."""
    follow: bool
    """Whether the edited response is to follow the instruction. The response itself does the opposite."""
    rng: Random
    """Source of randomness."""


Edit = Callable[[EditAim], Iterator[str]]


def flipped(asked: OfficialInstructions, response: str, *, index: int, rng: Random) -> str | None:
    """Return the response after an edit that flips one instruction and leaves all others; None if none is found.

    Args:
        asked: instructions of the row, with the official rules.
        response: response of the row.
        index: index of the instruction to flip.
        rng: source of randomness.
    """
    before, row = asked.followed(response), asked.row.instructions
    wanted = [followed is not (place == index) for place, followed in enumerate(before)]
    aim = EditAim(text=response, given=row.kwargs[index], follow=wanted[index], rng=rng)
    for text in islice(EDITS[row.instruction_id_list[index]](aim), MAX_PROPOSALS):
        if asked.follows(text, index=index) is wanted[index] and asked.followed(text) == wanted:
            return text
    return None


# Pieces -----------------------------------------------------------------------------------------------------------------


def _styles(text: str) -> tuple[str, str, str]:
    return text, text.lower(), text.upper()


def _put(text: str, piece: str, *, rng: Random, tries: int = 4) -> Iterator[str]:
    """Yield the text with a piece put after a sentence, between two words, at the end and at the beginning."""
    for pattern in (r"(?<=[.!?])(?=[^\S\n])", r"(?<=\w)(?=[^\S\n]\w)"):
        places = [match.start() for match in re.finditer(pattern, text)]
        for place in rng.sample(places, min(tries, len(places))):
            yield f"{text[:place]} {piece}{text[place:]}"
    end = len(text.rstrip(' "\n'))
    yield f"{text[:end]} {piece}{text[end:]}"
    yield f"{text[:end]}\n{piece}{text[end:]}"
    yield f"{piece} {text}"


def _spread(text: str, pieces: Iterable[str], *, rng: Random) -> str:
    """Return the text with each piece between two of its words."""
    places = [match.start() for match in re.finditer(r"(?<=\w)(?=[^\S\n]\w)", text)] or [len(text)]
    for place, piece in sorted(((rng.choice(places), piece) for piece in pieces), reverse=True):
        text = f"{text[:place]} {piece}{text[place:]}"
    return text


def _without(text: str, pattern: str, times: int, *, rng: Random, instead: str = "") -> str:
    """Return the text with a number of random matches of a pattern replaced. `\\1` stands for the first group."""
    found = list(re.finditer(pattern, text))
    for match in sorted(rng.sample(found, min(times, len(found))), key=lambda one: -one.start()):
        text = text[: match.start()] + match.expand(instead) + text[match.end() :]
    return text


def _compared(aim: EditAim, *, number: str, relation: str) -> tuple[int, bool]:
    """Return the number of a comparison, and whether the response needs more of what is counted."""
    return int(aim.given[number]), (aim.given[relation] == "at least") is aim.follow


def _count(pattern: str, text: str) -> int:
    return len(re.findall(pattern, text))


# Kinds ------------------------------------------------------------------------------------------------------------------


def _no_comma(aim: EditAim) -> Iterator[str]:
    if aim.follow:
        yield from (aim.text.replace(",", ""), aim.text.replace(",", " "), aim.text.replace(",", ";"))
    for _ in range(0 if aim.follow else 5):
        yield re.sub(r"^ ", "", _spread(aim.text, [","], rng=aim.rng)).replace(" , ", ", ").replace(" ,", ",")


def _words(aim: EditAim) -> Iterator[str]:
    number, more = _compared(aim, number="num_words", relation="relation")
    count = _count(r"\w+", aim.text)
    if more:
        words = (_FILLER * (1 + (number - count) // len(_FILLER)))[: number - count]
        plain = " ".join(words)
        for piece in chain(_styles(f"{plain.capitalize()}."), _styles(plain)):
            yield from _put(aim.text, piece, rng=aim.rng)
        return
    yield from _shortened(aim.text, count - number + 1, rng=aim.rng)


def _shortened(text: str, num_words: int, *, rng: Random) -> Iterator[str]:
    """Yield the text without a number of words: some at random, and a run of them."""
    spans = [match.span() for match in re.finditer(r"\w+", text)]
    inner = [match.span() for match in re.finditer(r"(?<=\w[^\S\n])\w+[^\S\n](?=\w)", text)]
    for _ in range(4):
        shorter = text
        for start, end in sorted(rng.sample(inner, min(num_words, len(inner))), reverse=True):
            shorter = shorter[:start] + shorter[end:]
        yield shorter
    for _ in range(24):
        first = rng.randrange(max(1, len(spans) - num_words))
        yield text[: spans[first][0]] + text[spans[min(first + num_words, len(spans) - 1)][0] :]


def _num_sentences(aim: EditAim) -> Iterator[str]:
    _, more = _compared(aim, number="num_sentences", relation="relation")
    for steps in range(1, MAX_STEPS):
        if more:
            plain = " ".join(_SENTENCES[step % len(_SENTENCES)] for step in range(steps))
            yield from chain.from_iterable(_put(aim.text, piece, rng=aim.rng, tries=1) for piece in _styles(plain))
            continue
        for instead in (" and", ";", ""):
            yield _without(aim.text, r"(?<=\w)[.](?=\s)", steps, rng=aim.rng, instead=instead)
            yield _without(aim.text, r"(?<=\w)[.!?]+(?=\s)", steps, rng=aim.rng, instead=instead)


def _existence(aim: EditAim) -> Iterator[str]:
    keywords: list[str] = aim.given["keywords"]
    if aim.follow:
        missing = " and ".join(word for word in keywords if word.lower() not in aim.text.lower())
        yield from chain.from_iterable(_put(aim.text, piece, rng=aim.rng) for piece in _styles(missing))
        return
    for word in aim.rng.sample(keywords, len(keywords)):
        for other in ("thing", "THING", "one", "ONE", ""):
            yield re.sub(re.escape(word), other, aim.text, flags=re.IGNORECASE)


def _forbidden(aim: EditAim) -> Iterator[str]:
    words: list[str] = aim.given["forbidden_words"]
    if aim.follow:
        for other in ("thing", "THING", "one", "ONE", ""):
            yield re.sub(rf"\b(?:{'|'.join(map(re.escape, words))})\b", other, aim.text, flags=re.IGNORECASE)
        return
    for word in aim.rng.sample(words, len(words)):
        yield from chain.from_iterable(_put(aim.text, piece, rng=aim.rng) for piece in _styles(word))


def _frequency(aim: EditAim) -> Iterator[str]:
    number, more = _compared(aim, number="frequency", relation="relation")
    word = aim.given["keyword"]
    pattern = rf"(?i){re.escape(word)}"
    count = _count(pattern, aim.text)
    for _ in range(4):
        for piece in _styles(word) if more else ("it", "IT", "", "one"):
            if more:
                yield _spread(aim.text, [piece] * (number - count), rng=aim.rng)
            else:
                yield _without(aim.text, pattern, count - number + 1, rng=aim.rng, instead=piece)


def _letters(aim: EditAim) -> Iterator[str]:
    number, more = _compared(aim, number="let_frequency", relation="let_relation")
    letter = aim.given["letter"].lower()
    count = aim.text.lower().count(letter)
    for _ in range(4):
        if not more:
            yield _without(aim.text, rf"(?i){re.escape(letter)}", count - number + 1, rng=aim.rng)
            continue
        for piece in (letter, letter.upper()):
            yield from _put(aim.text, piece * (number - count), rng=aim.rng)
            yield _spread(aim.text, [piece] * (number - count), rng=aim.rng)


def _language(aim: EditAim) -> Iterator[str]:
    if aim.follow:
        return
    english = "This is the answer in plain English. There is nothing else to say about it for now."
    size = 1 + len(aim.text) // len(english)
    yield from _styles(" ".join([english] * size))
    yield from _styles("\n\n".join([english] * size))


def _lower(aim: EditAim) -> Iterator[str]:
    if aim.follow:
        yield aim.text.lower()
        return
    words = [match.start() for match in re.finditer(r"\b[a-z]", aim.text)]
    for place in [*words[:1], *aim.rng.sample(words, min(6, len(words)))]:
        yield aim.text[:place] + aim.text[place].upper() + aim.text[place + 1 :]


def _upper(aim: EditAim) -> Iterator[str]:
    if aim.follow:
        yield aim.text.upper()
        return
    words = list(re.finditer(r"\b[A-Z]{3,}\b", aim.text))
    for match in aim.rng.sample(words, min(6, len(words))):
        for word in (match[0].capitalize(), match[0].lower()):
            yield aim.text[: match.start()] + word + aim.text[match.end() :]


def _capital_words(aim: EditAim) -> Iterator[str]:
    _, more = _compared(aim, number="capital_frequency", relation="capital_relation")
    pattern = r"\b[a-z]{4,}\b" if more else r"\b[A-Z][A-Z'-]*\b"
    words = list(re.finditer(pattern, aim.text))
    for steps in range(1, MAX_STEPS):
        for change in (str.upper,) if more else (str.capitalize, str.lower):
            text = aim.text
            chosen = aim.rng.sample(words, min(steps, len(words)))
            for match in sorted(chosen, key=lambda one: -one.start()):
                text = text[: match.start()] + change(match[0]) + text[match.end() :]
            yield text


def _two_responses(aim: EditAim) -> Iterator[str]:
    if not aim.follow:
        yield from (aim.text.replace("******", ""), aim.text.replace("******", "\n"), aim.text.replace("******", "--"))
        return
    first, *others = [part for part in aim.text.split("******") if part.strip()] or [aim.text]
    yield f"{first}******{' '.join(others)}"
    for other in _styles("Here is another answer."):
        yield f"{first}\n******\n{other}"


def _repeat(aim: EditAim) -> Iterator[str]:
    if aim.follow:
        yield f"{aim.given['prompt_to_repeat']}\n\n{aim.text}"
        return
    yield from (f"{opening} {aim.text}" for opening in _styles("Sure."))
    yield re.sub(r"^\s*\S+\s+", "", aim.text)


def _quotation(aim: EditAim) -> Iterator[str]:
    bare = aim.text.strip().strip('"')
    if aim.follow:
        yield from (f'"{bare}"', f'"{aim.text.strip()}"')
    else:
        yield from (bare, f'"{bare}', f'{bare}"')


def _ending(aim: EditAim) -> Iterator[str]:
    phrase, text = aim.given["end_phrase"], aim.text.rstrip()
    body = text.rstrip('"')
    quote = text[len(body) :]
    if aim.follow:
        for piece in _styles(phrase):
            yield from (f"{body}\n{piece}{quote}", f"{body} {piece}{quote}")
        return
    for piece in _styles("That is all."):
        yield from (f"{body} {piece}{quote}", f"{body}\n{piece}{quote}")
    yield re.sub(re.escape(phrase), "", text, flags=re.IGNORECASE)


def _title(aim: EditAim) -> Iterator[str]:
    if not aim.follow:
        yield re.sub(r"<<|>>", "", aim.text)
        yield aim.text.replace("<<", "<").replace(">>", ">")
        return
    for piece in _styles("<<A Title>>"):
        yield f"{piece}\n\n{aim.text}"
        yield from _put(aim.text, piece, rng=aim.rng)


def _highlights(aim: EditAim) -> Iterator[str]:
    for steps in range(1, MAX_STEPS):
        if not aim.follow:
            yield _without(aim.text, r"\*+([^\n*]+)\*+", steps, rng=aim.rng, instead=r"\1")
            continue
        yield _without(aim.text, r"(?<=[^\S\n])(\w{4,})(?=[^\S\n])", steps, rng=aim.rng, instead=r"*\1*")
        for piece in _styles("*one part*"):
            yield _spread(aim.text, [piece] * steps, rng=aim.rng)


def _bullets(aim: EditAim) -> Iterator[str]:
    bullet = r"(?m)^([^\S\n]*)(?:\*(?!\*)|-)[^\S\n]*"
    lines = r"(?m)^[^\S\n]*(?:\*(?!\*)|-).*\n?"
    last = max((match.end() for match in re.finditer(lines, aim.text)), default=len(aim.text))
    for steps in range(1, MAX_STEPS if aim.follow else 3):
        for piece in _styles("* One more point"):
            added = "\n".join([piece] * steps)
            yield f"{aim.text[:last].rstrip()}\n{added}\n{aim.text[last:]}".rstrip()
        yield _without(aim.text, bullet, steps, rng=aim.rng, instead=r"\1")
        yield _without(aim.text, lines, steps, rng=aim.rng)


def _placeholders(aim: EditAim) -> Iterator[str]:
    for steps in range(1, MAX_STEPS):
        if not aim.follow:
            yield _without(aim.text, r"\[([^\[\]\n]*)\]", steps, rng=aim.rng, instead=r"\1")
            continue
        for piece in _styles("[name]"):
            yield _spread(aim.text, [piece] * steps, rng=aim.rng)
            yield from _put(aim.text, " ".join([piece] * steps), rng=aim.rng, tries=1)


def _star_paragraphs(aim: EditAim) -> Iterator[str]:
    for steps in range(1, 12):
        for piece in _styles("\n***\nThis is a further part."):
            yield aim.text.rstrip() + piece * steps
        yield _without(aim.text, r"\n+(?=\n)", steps, rng=aim.rng, instead="\n***\n")
        yield _without(aim.text, r"\s*\*\*\*\s*", steps, rng=aim.rng, instead="\n\n")
        yield _without(aim.text, r"\s*\*\*\*\s*", steps, rng=aim.rng, instead=" ")


def _postscript(aim: EditAim) -> Iterator[str]:
    if not aim.follow:
        for other in ("Note:", "note:", "NOTE:", ""):
            yield re.sub(r"(?:p\.\s?)+s\.?:?", other, aim.text, flags=re.IGNORECASE)
        return
    marker = aim.given["postscript_marker"]
    for piece in _styles("I nearly forgot this."):
        yield f"{aim.text.rstrip()}\n\n{marker} {piece}"
        yield from _put(aim.text, f"{marker} {piece}", rng=aim.rng)


def _json(aim: EditAim) -> Iterator[str]:
    if aim.follow:
        inner = re.search(r"\{[\s\S]*\}", aim.text)
        yield from () if inner is None else (inner[0],)
        yield from (json.dumps({key: aim.text}, ensure_ascii=False) for key in _styles("Response"))
        return
    for piece in _styles("Here it is:"):
        yield f"{piece}\n{aim.text}"
    yield aim.text.rstrip().removesuffix("```").rstrip()[:-1]
    yield from (f"{aim.text}\n{piece}" for piece in _styles("It ends here."))


def _sections(aim: EditAim) -> Iterator[str]:
    word, number = aim.given["section_spliter"].strip(), int(aim.given["num_sections"])
    for steps in range(1, MAX_STEPS):
        if not aim.follow:
            yield _without(aim.text, rf"{re.escape(word)}\s?\d+", steps, rng=aim.rng, instead="Part")
            yield _without(aim.text, rf"{re.escape(word)}\s?\d+", steps, rng=aim.rng, instead="PART")
            yield _without(aim.text, rf"{re.escape(word)}\s?\d+", steps, rng=aim.rng, instead="part")
            continue
        for piece in _styles("Some more text."):
            added = "".join(f"\n\n{word} {number + step}\n{piece}" for step in range(steps))
            yield aim.text.rstrip() + added


def _nth_paragraph(aim: EditAim) -> Iterator[str]:
    number, place, word = aim.given["num_paragraphs"], aim.given["nth_paragraph"] - 1, aim.given["first_word"]
    parts = aim.text.split("\n\n")
    if not aim.follow:
        for piece in _styles("Well"):
            yield "\n\n".join(f"{piece} {part}" if at == place else part for at, part in enumerate(parts))
        yield from (f"{aim.text.rstrip()}\n\n{piece}" for piece in _styles("This is a further part."))
        return
    parts = [part for part in parts if part.strip()]
    for piece in _styles("This is a further part."):
        fitted = [*parts[: number - 1], "\n".join(parts[number - 1 :])] if len(parts) > number else list(parts)
        fitted += [piece] * (number - len(fitted))
        for opening in (word.capitalize(), word, word.upper()):
            yield "\n\n".join(f"{opening} {part}" if at == place else part for at, part in enumerate(fitted))
        yield "\n\n".join(fitted)


def _constrained(aim: EditAim) -> Iterator[str]:
    if not aim.follow:
        yield aim.text.replace("My answer is", "I would say")
        yield re.sub(r"(My answer is \w+)\.", r"\1", aim.text)
        return
    for answer in ANSWERS:
        yield answer
        yield from _put(aim.text, answer, rng=aim.rng)


EDITS: Mapping[str, Edit] = {
    "change_case:capital_word_frequency": _capital_words,
    "change_case:english_capital": _upper,
    "change_case:english_lowercase": _lower,
    "combination:repeat_prompt": _repeat,
    "combination:two_responses": _two_responses,
    "detectable_content:number_placeholders": _placeholders,
    "detectable_content:postscript": _postscript,
    "detectable_format:constrained_response": _constrained,
    "detectable_format:json_format": _json,
    "detectable_format:multiple_sections": _sections,
    "detectable_format:number_bullet_lists": _bullets,
    "detectable_format:number_highlighted_sections": _highlights,
    "detectable_format:title": _title,
    "keywords:existence": _existence,
    "keywords:forbidden_words": _forbidden,
    "keywords:frequency": _frequency,
    "keywords:letter_frequency": _letters,
    "language:response_language": _language,
    "length_constraints:nth_paragraph_first_word": _nth_paragraph,
    "length_constraints:number_paragraphs": _star_paragraphs,
    "length_constraints:number_sentences": _num_sentences,
    "length_constraints:number_words": _words,
    "punctuation:no_comma": _no_comma,
    "startend:end_checker": _ending,
    "startend:quotation": _quotation,
}
"""Kind of an instruction -> the edits towards following or breaking it, in the order in which they are tried."""
