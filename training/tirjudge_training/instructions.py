"""Verifiable instructions in the manner of IFEval (arXiv 2311.07911): what they say, when they hold, and the line of
Python that checks them by reading their parameters from the prompt.

A kind holds three things that must agree, and a test sees that they do: `holds` (the truth, from the parameters),
`code` (what the judge learns to write; `n0`, `q0` stand for "the third number in the prompt", "its first quotation"), and
`shape` (how a response is written that follows or breaks the instruction). `held_out` phrasings are never trained on.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from tirjudge_training.drafting import Draft
from tirjudge_training.paraphrase import paraphrase
from tirjudge_training.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The values one instruction was drawn with."""

    number: int | None = None
    op: str = "=="
    """How the count compares to `number`: one of >=, <=, ==, <, >."""
    quotes: tuple[str, ...] = ()
    """What stands in quotation marks, in the order of the phrasing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of instruction."""

    name: str
    """What the judge calls it when it plans."""
    phrasings: tuple[str, ...]
    """Sentences with {n} for the number, {rel} for number and comparison, {q}, {q1}, {q2} or {qs} for quotations."""
    held_out: tuple[str, ...]
    """Phrasings that only a measurement uses."""
    code: str
    """A Python expression over the response `r`: n0 is the instruction's number, q0 its first quotation, qs all of them."""
    draw: Callable[[Random, Vocabulary], Params]
    holds: Callable[[str, Params, str], bool]
    """(response, params, request) -> whether the response follows; `request` is the task without its instructions."""
    shape: Callable[[Draft, Params, bool, Random, str], None]
    """(draft, params, follow, rng, request): ask for what follows the instruction, or for what breaks it."""


OPS: dict[str, Callable[[int, int], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}

RELATIONS: dict[str, tuple[str, ...]] = {
    ">=": (
        "at least {n}", "a minimum of {n}", "no fewer than {n}", "no less than {n}", "{n} or more", "not less than {n}",
        "at minimum {n}", "{n}+", "at least a total of {n}", "minimum {n}", "not below {n}", "not under {n}", "no lower than {n}",
        "no smaller a number than {n}", "{n} at least or more", "{n} or even more", "{n} or above", "at the very least {n}", "never less than {n}",
    ),
    "<=": (
        "at most {n}", "no more than {n}", "a maximum of {n}", "up to {n}", "{n} or fewer", "not more than {n}",
        "{n} or less", "at maximum {n}", "at most a total of {n}", "maximum {n}", "not above {n}", "not over {n}", "no higher than {n}",
        "no greater a number than {n}", "{n} or even fewer", "{n} or below", "at the very most {n}", "never more than {n}", "a limit of {n}",
    ),
    "==": ("exactly {n}", "precisely {n}", "{n}", "a total of {n}", "just {n}", "exactly a total of {n}", "only {n}", "neither more nor less than {n}",
           "neither more nor fewer than {n}", "strictly {n}", "not more or less than {n}", "an exact total of {n}"),
    "<": ("fewer than {n}", "less than {n}", "under {n}", "strictly fewer than {n}", "below {n}", "a number below {n}", "in total fewer than {n}", "strictly below {n}"),
    ">": ("more than {n}", "over {n}", "above {n}", "strictly more than {n}", "upwards of {n}", "a number above {n}", "in total more than {n}", "strictly above {n}"),
}  # fmt: skip
HELD_OUT_RELATIONS: dict[str, tuple[str, ...]] = {
    ">=": ("not fewer than {n}", "a total of {n} or more", "at the minimum {n}"),
    "<=": ("at the most {n}", "a total of {n} or fewer", "a total of no more than {n}"),
    "==": ("precisely a total of {n}", "no more and no less than {n}"),
    "<": ("strictly less than {n}", "a total of fewer than {n}"),
    ">": ("strictly over {n}", "a total of more than {n}"),
}

_COUNT = (
    "Use {rel} {noun}.", "Write {rel} {noun}.", "Your response should contain {rel} {noun}.",
    "Your answer must have {rel} {noun}.", "The response must include {rel} {noun}.", "Make sure your reply has {rel} {noun}.",
    "Answer with {rel} {noun}.", "Please put {rel} {noun} in your answer.", "There should be {rel} {noun} in your response.",
    "I want {rel} {noun}.", "Ensure the text contains {rel} {noun}.", "Keep your answer to {rel} {noun}.",
    "The number of {noun} must be {rel}.", "The reply needs {rel} {noun}.", "Your output has to contain {rel} {noun}.",
    "Include {rel} {noun} in your text.", "Your response should have {rel} {noun} in total.", "It must contain {rel} {noun}.",
    "Give me {rel} {noun}.", "Be sure to use {rel} {noun} in the response.", "The answer should consist of {rel} {noun}.",
    "Your entire reply must be {rel} {noun}.", "Please respond with {rel} {noun}.", "The {noun} in your answer should number {rel}.",
    "We need {rel} {noun} here.", "Make it {rel} {noun}.", "Ensure your response contains {rel} {noun}.",
    "Your response should have {rel} {noun}.",
)  # fmt: skip
_COUNT_HELD_OUT = (
    "Have {rel} {noun} in the answer.", "I would like {rel} {noun} in your reply.", "The text you write should have {rel} {noun}.",
    "Your reply must contain {rel} {noun} in total.", "Please make sure there are {rel} {noun}.", "Respond using {rel} {noun}.",
)  # fmt: skip
_COUNT_OP = {
    "<=": (
        "Limit your answer to {n} {noun}.", "Do not use more than {n} {noun}.", "Do not exceed {n} {noun}.",
        "Never write more than {n} {noun}.", "Your response must not exceed {n} {noun}.", "Don't go over {n} {noun}.",
        "The response should not have more than {n} {noun}.", "You may use {n} {noun} but no more.", "Keep it within {n} {noun}.",
    ),
    ">=": (
        "Do not use fewer than {n} {noun}.", "Never write fewer than {n} {noun}.", "Do not go below {n} {noun}.",
        "Your response must not have less than {n} {noun}.", "The response should not contain fewer than {n} {noun}.",
        "You need {n} {noun} but may use more.", "{n} {noun} is the minimum.", "Don't write less than {n} {noun}.",
    ),
    "<": ("Stay below {n} {noun}.", "Stay under {n} {noun}.", "Your answer must remain below {n} {noun}."),
    ">": ("Go beyond {n} {noun}.", "Your answer must exceed {n} {noun}.", "Write more {noun} than {n}."),
    "==": ("Use {n} {noun}, no more and no less.", "{n} {noun}, not more and not fewer.", "The number of {noun} must equal {n}."),
}  # fmt: skip
_COUNT_OP_HELD_OUT = {
    "<=": ("Your answer must not contain more than {n} {noun}.", "Do not write more than {n} {noun} in your reply."),
    ">=": ("Your answer must not contain fewer than {n} {noun}.", "Do not write fewer than {n} {noun} in your reply."),
    "<": ("Keep your response below {n} {noun}.",),
    ">": ("Your reply must go over {n} {noun}.",),
    "==": ("Your text must have {n} {noun}, not more and not less.",),
}


def phrasing(kind: Kind, params: Params, *, rng: Random, held_out: bool) -> str:
    """One sentence that says the instruction, its number and quotations still to be filled in."""
    sentence = rng.choice(kind.held_out if held_out else kind.phrasings)
    if sentence.startswith("@"):  # a counted noun: take one of the sentences that all counts share
        sentence = _count_sentence(sentence[1:], params.op, rng=rng, held_out=held_out)
    if not held_out and rng.random() < 0.7:
        said = paraphrase(sentence, rng=rng)
        sentence = sentence if _is_held_out(said) else said
    if "{rel}" in sentence:
        relations = HELD_OUT_RELATIONS if held_out and rng.random() < 0.5 else RELATIONS
        sentence = sentence.replace("{rel}", rng.choice(relations[params.op]))
    return sentence


def _is_held_out(sentence: str) -> bool:
    """Whether a paraphrase happens to be a sentence that only a measurement may use."""
    return sentence.lower() in _held_out_sentences()


@cache
def _held_out_sentences() -> frozenset[str]:
    own = [sentence for kind in KINDS for sentence in kind.held_out]
    nouns = {sentence[1:] for sentence in own if sentence.startswith("@")}
    shared = [*_COUNT_HELD_OUT, *(sentence for group in _COUNT_OP_HELD_OUT.values() for sentence in group)]
    return frozenset(
        sentence.lower() for sentence in (*own, *(s.replace("{noun}", noun) for s in shared for noun in nouns))
    )


def _count_sentence(noun: str, op: str, *, rng: Random, held_out: bool) -> str:
    if rng.random() < 0.3:
        sentence = rng.choice((_COUNT_OP_HELD_OUT if held_out else _COUNT_OP)[op])
    else:
        sentence = rng.choice(_COUNT_HELD_OUT if held_out else _COUNT)
    return sentence.replace("{noun}", noun)


def count_for(op: str, number: int, *, follow: bool, rng: Random, least: int = 0) -> int:
    """A count that stands in `op` to `number`, or does not; never below `least` unless nothing else would do."""
    near = [c for c in range(max(least, number - 4), number + 5) if OPS[op](c, number) is follow]
    far = [c for c in range(least, 2 * number + 6) if OPS[op](c, number) is follow]
    return rng.choice(near if near and rng.random() < 0.7 else far or [least])


# Counted things ---------------------------------------------------------------------------------------------------------


def _counted(
    name: str,
    nouns: tuple[str, ...],
    *,
    code: str,
    count: Callable[[str], int],
    feature: str,
    span: tuple[int, int],
    step: int = 1,
    least: int = 0,
    extra: tuple[str, ...] = (),
    extra_held_out: tuple[str, ...] = (),
    fixed_op: str | None = None,
) -> Kind:
    """A kind that compares a count of something to a number.

    Args:
        nouns: what the counted things are called; the phrasings that all counts share are used with each.
        code: counts them in `r`.
        count: the truth, said differently from `code`.
        feature: what to ask a draft for.
        span: smallest and largest number asked for, in steps of `step`.
        least: the fewest a text can have.
        extra, extra_held_out: phrasings of its own, with {rel}, or with {n} if `fixed_op` says how to compare.
    """

    def draw(rng: Random, vocabulary: Vocabulary) -> Params:
        op = fixed_op or rng.choice((">=", ">=", ">=", "<=", "<=", "==", "==", "==", "<", ">"))
        return Params(
            number=rng.randrange(span[0], span[1] + 1, step) + (1 if op == "<" and span[0] == least else 0), op=op
        )

    def holds(response: str, params: Params, request: str) -> bool:
        assert params.number is not None
        return OPS[params.op](count(response), params.number)

    def shape(draft: Draft, params: Params, follow: bool, rng: Random, request: str) -> None:
        assert params.number is not None
        draft.ask(feature, count_for(params.op, params.number, follow=follow, rng=rng, least=least))

    shared = tuple(f"@{noun}" for noun in nouns)
    return Kind(
        name=name,
        phrasings=shared * 2 + extra if shared else extra,
        held_out=shared * 2 + extra_held_out if shared else extra_held_out,
        code=f"{code} {{op}} n0",
        draw=draw,
        holds=holds,
        shape=shape,
    )


def _insertable(draft: Draft, word: Callable[[int], str], *, times: int) -> None:
    draft.inserted += [word(i) for i in range(times)]


def _marks(
    name: str,
    nouns: tuple[str, ...],
    *,
    code: str,
    count: Callable[[str], int],
    mark: Callable[[int], str],
    span: tuple[int, int],
    extra: tuple[str, ...] = (),
    extra_held_out: tuple[str, ...] = (),
) -> Kind:
    """A counted kind whose things are words put into the text: placeholders, hashtags, highlights."""
    base = _counted(
        name, nouns, code=code, count=count, feature=name, span=span, extra=extra, extra_held_out=extra_held_out
    )

    def shape(draft: Draft, params: Params, follow: bool, rng: Random, request: str) -> None:
        assert params.number is not None
        times = count_for(params.op, params.number, follow=follow, rng=rng)
        draft.ask(name, times)
        _insertable(draft, mark, times=times)

    return replace(base, shape=shape)


def _num_sentences(text: str) -> int:
    return sum(c in ".!?" and (i + 1 == len(text) or text[i + 1].isspace()) for i, c in enumerate(text))


def _num_lines_starting(text: str, pattern: str) -> int:
    return sum(re.match(pattern, line) is not None for line in text.split("\n"))


COUNTED = (
    _counted(
        "words", ("words",), code="len(r.split())", count=lambda t: len(re.findall(r"\S+", t)), feature="words",
        span=(8, 60), least=1,
        extra=("Your response should be {rel} words long.", "The length should be {rel} words.", "Answer in {rel} words."),
        extra_held_out=("The whole answer should be {rel} words in length.", "Write your answer in {rel} words."),
    ),
    _counted(
        "sentences", ("sentences",), code='len(re.findall(r"[.!?](?=\\s|$)", r))', count=_num_sentences, feature="sentences",
        span=(1, 9), least=1,
        extra=("Answer in {rel} sentences.", "Explain it in {rel} sentences.", "Keep it {rel} sentences long."),
        extra_held_out=("Describe it in {rel} sentences.", "Write your answer in {rel} sentences."),
    ),
    _counted(
        "paragraphs", ("paragraphs",), code='len([p for p in r.split("\\n\\n") if p.strip()])',
        count=lambda t: sum(bool(p.strip()) for p in re.split(r"\n\n", t)), feature="paragraphs", span=(1, 6), least=1,
        extra=("Divide the text into {rel} paragraphs.", "Organize your answer into {rel} paragraphs.",
               "Paragraphs are separated by a blank line and there should be {rel} paragraphs."),
        extra_held_out=("Split your answer into {rel} paragraphs.", "Arrange the text in {rel} paragraphs."),
    ),
    _counted(
        "bullets", ("bullet points", "bullets", "bulleted items"), code='len(re.findall(r"(?m)^\\s*[*-] ", r))',
        count=lambda t: _num_lines_starting(t, r"\s*[*-] "), feature="bullets", span=(1, 8),
        extra=("Format the answer as a list of {rel} bullet points.", "Add a list with {rel} bullets such as \"* item\".", "Use a bulleted list and give {rel} bullet points.", "Make bullets and have {rel} of them, as bullet points.", "List your points in {rel} bullets.",
               "Summarize it in {rel} bullet points."),
        extra_held_out=("Present the answer as {rel} bullet points.", "Use markdown bullets and write {rel} bullet points."),
    ),
    _counted(
        "numbered items", ("numbered items", "numbered points", "numbered steps"), code='len(re.findall(r"(?m)^\\s*\\d+[.)] ", r))',
        count=lambda t: _num_lines_starting(t, r"\s*\d+[.)] "), feature="numbered", span=(1, 8),
        extra=("Give a numbered list of {rel} items.", "Number your points and list {rel} numbered items.",
               "Answer as a numbered list with {rel} entries."),
        extra_held_out=("Write a numbered list that has {rel} items.", "Present it as a numbered list of {rel} steps."),
    ),
    _counted(
        "lines", ("lines",), code="len([x for x in r.splitlines() if x.strip()])",
        count=lambda t: sum(bool(x.strip()) for x in t.splitlines()), feature="lines", span=(1, 8), least=1,
        extra=("The poem should have {rel} lines.", "Put the text on {rel} lines.", "Lay the text out over {rel} lines.", "Have the text run over {rel} lines.", "Break the text into {rel} lines."),
        extra_held_out=("Spread the text over {rel} lines.", "Write it on {rel} lines."),
    ),
    _counted(
        "characters", ("characters",), code="len(r)", count=lambda t: sum(1 for _ in t), feature="characters", span=(60, 300),
        step=10, least=1,
        extra=("Your response should be {rel} characters long.", "The length should be {rel} characters.",
               "Spaces included, the text should have {rel} characters."),
        extra_held_out=("The whole answer should be {rel} characters in length.", "Count every character and use {rel} characters."),
    ),
    _counted(
        "question marks", ("question marks",), code='r.count("?")', count=lambda t: len(re.findall(r"\?", t)),
        feature="question_marks", span=(1, 6),
        extra=("Use the question mark {rel} times.", "Let the question mark appear {rel} times.", "Place a question mark in your answer {rel} times.", "The question mark has to be in there {rel} times.", "Ask {rel} questions with a question mark."),
        extra_held_out=("The question mark should occur {rel} times.", "Put a question mark in the text {rel} times."),
    ),
    _counted(
        "exclamation marks", ("exclamation marks", "exclamation points"), code='r.count("!")',
        count=lambda t: len(re.findall("!", t)), feature="exclamation_marks", span=(1, 6),
        extra=("Use the exclamation mark {rel} times.", "Let the exclamation mark appear {rel} times."),
        extra_held_out=("The exclamation mark should occur {rel} times.", "Put an exclamation mark in the text {rel} times."),
    ),
    _marks(
        "placeholders", ("placeholders", "placeholders in square brackets", "placeholders such as [address]"),
        code='len(re.findall(r"\\[.+?\\]", r))', count=lambda t: len(re.findall(r"\[[^\[\]\n]+\]", t)),
        mark=lambda i: ("[name]", "[address]", "[date]", "[city]", "[phone]")[i % 5], span=(1, 6),
        extra=("Leave {rel} blanks in square brackets, such as [name], to be filled in.", "Mark {rel} spots with square brackets like [date]."),
        extra_held_out=("Put {rel} placeholders like [name] in the text.", "The text needs {rel} fields in square brackets such as [city]."),
    ),
    _marks(
        "highlights", ("highlighted sections", "highlighted phrases", "highlighted parts"), code='len(re.findall(r"\\*[^*\\n]+\\*", r))',
        count=lambda t: len(re.findall(r"\*[^*\n]+?\*", t)), mark=lambda i: ("*note*", "*key point*", "*fact*")[i % 3], span=(1, 6),
        extra=("Highlight {rel} sections with markdown, such as *highlighted section*.", "Highlight {rel} phrases in markdown with asterisks.",
               "Put {rel} phrases between asterisks like *this*."),
        extra_held_out=("Use asterisks to highlight {rel} parts, like *this*.", "Highlight {rel} sections in your answer with markdown."),
    ),
    _marks(
        "hashtags", ("hashtags", "hashtags such as #news"), code='len(re.findall(r"#\\w+", r))', count=lambda t: len(re.findall(r"#\w+", t)),
        mark=lambda i: ("#fun", "#news", "#today", "#life")[i % 4], span=(1, 6),
        extra=("Tag the post with {rel} hashtags.", "Add {rel} hashtags."),
        extra_held_out=("Use hashtags and have {rel} hashtags.", "Tag your text with {rel} hashtags like #fun."),
    ),
    _marks(
        "capital words", ("words in all capital letters", "fully capitalized words", "words in all caps"),
        code='len(re.findall(r"\\b[A-Z]{2,}\\b", r))', count=lambda t: len(re.findall(r"\b[A-Z][A-Z]+\b", t)),
        mark=lambda i: ("NOW", "NEVER", "GOOD", "ALWAYS")[i % 4], span=(1, 6),
        extra=("Write {rel} words in all capital letters.", "Have {rel} words in capital letters.", "Put {rel} words in all caps for emphasis."),
        extra_held_out=("Use capital letters for {rel} words.", "All caps should be used for {rel} words."),
    ),
    _marks(
        "parentheses", ("parentheses", "remarks in parentheses"), code='r.count("(")', count=lambda t: t.count("("),
        mark=lambda i: ("(see below)", "(indeed)", "(of course)")[i % 3], span=(1, 5),
        extra=("Put {rel} remarks in parentheses.", "Use parentheses {rel} times."),
        extra_held_out=("Have {rel} remarks in round parentheses.", "Let parentheses appear {rel} times."),
    ),
    _marks(
        "numbers", ("numbers written in digits", "numbers in digits"), code='len(re.findall(r"\\d+", r))',
        count=lambda t: len(re.findall(r"[0-9]+", t)), mark=lambda i: ("7", "42", "365", "12")[i % 4], span=(1, 5),
        extra=("Mention {rel} numbers in digits.", "Use digits for {rel} numbers."),
        extra_held_out=("Put {rel} numbers in digits into the text.", "Write {rel} numbers with digits."),
    ),
)  # fmt: skip


def _draw_frequency(rng: Random, vocabulary: Vocabulary) -> Params:
    op = rng.choice((">=", ">=", ">=", "<=", "==", "==", "<", ">"))
    return Params(number=rng.randint(2, 5), op=op, quotes=(vocabulary.keyword(rng),))


def _shape_frequency(draft: Draft, params: Params, follow: bool, rng: Random, request: str) -> None:
    assert params.number is not None
    draft.insert(params.quotes[0], times=count_for(params.op, params.number, follow=follow, rng=rng))


def _occurrences(word: str, text: str) -> int:
    return len(re.findall(rf"(?<!\w){re.escape(word.lower())}(?!\w)", text.lower()))


def _draw_letter(rng: Random, vocabulary: Vocabulary) -> Params:
    op = rng.choice((">=", ">=", ">=", "<=", "==", "<", ">"))
    return Params(number=rng.randint(2, 6), op=op, quotes=(rng.choice("qzxjkvwybh"),))


def _shape_letter(draft: Draft, params: Params, follow: bool, rng: Random, request: str) -> None:
    assert params.number is not None
    letter = params.quotes[0]
    times = count_for(params.op, params.number, follow=follow, rng=rng)
    if any(letter in word.lower() for word in draft.inserted):
        times = max(0, times - sum(word.lower().count(letter) for word in draft.inserted))
    draft.avoid_letter(letter)
    _insertable(draft, lambda i: (f"{letter}o", f"a{letter}a", f"e{letter}i", f"o{letter}")[i % 4], times=times)


def _draw_sections(rng: Random, vocabulary: Vocabulary) -> Params:
    marker = rng.choice(("Section", "PARAGRAPH", "Part", "SECTION", "Chapter", "Day", "Step", "Scene"))
    return Params(number=rng.randint(1, 5), op=rng.choice((">=", "==", "<=", ">=")), quotes=(marker,))


def _shape_sections(draft: Draft, params: Params, follow: bool, rng: Random, request: str) -> None:
    assert params.number is not None
    count = count_for(params.op, params.number, follow=follow, rng=rng)
    draft.ask("sections", (params.quotes[0], count))


COUNTED_QUOTED = (
    Kind(
        name="word frequency",
        phrasings=(
            "Have {q} in the text {rel} times.", "Put {q} into your answer {rel} times.", "{q} has to be in there {rel} times.", "The count of {q} should be {rel}.", "See that {q} comes up {rel} times.", "Your message should hold {q} {rel} times.",
            "Use the word {q} {rel} times.", "The word {q} should appear {rel} times.", "Mention {q} {rel} times.",
            "Your response should contain the word {q} {rel} times.", "Include the keyword {q} {rel} times.",
            "Make sure the word {q} appears {rel} times.", "Repeat the word {q} {rel} times.", "Let {q} occur {rel} times in your answer.",
            "In your response, the word {q} must appear {rel} times.", "The keyword {q} has to occur {rel} times.",
            "Say {q} {rel} times in the text.", "I want to see {q} {rel} times.", "Ensure that {q} is used {rel} times.",
            "Have the term {q} show up {rel} times.", "{q} must be mentioned {rel} times.", "Work the word {q} into the text {rel} times.",
            "The number of times that {q} appears must be {rel}.",
        ),
        held_out=(
            "Please use the term {q} {rel} times in your reply.", "The term {q} should be mentioned {rel} times.",
            "Your text must have {q} in it {rel} times.", "Make sure to say the word {q} {rel} times.",
        ),
        code='len(re.findall(r"\\b" + re.escape(q0) + r"\\b", r, re.I)) {op} n0',
        draw=_draw_frequency,
        holds=lambda t, p, _: OPS[p.op](_occurrences(p.quotes[0], t), p.number or 0),
        shape=_shape_frequency,
    ),
    Kind(
        name="letter frequency",
        phrasings=(
            "Put the letter {q} into your answer {rel} times.", "The letter {q} has to be in there {rel} times.", "The count of the letter {q} should be {rel}.", "Have the letter {q} in the text {rel} times.",
            "The letter {q} should appear {rel} times.", "Use the letter {q} {rel} times.", "Let the letter {q} occur {rel} times.",
            "Your response should contain the letter {q} {rel} times.", "Make sure the letter {q} appears {rel} times.",
            "In your response, the letter {q} must appear {rel} times.", "Have the letter {q} show up {rel} times.",
            "The letter {q} has to occur {rel} times.", "Include the letter {q} {rel} times.", "Type the letter {q} {rel} times in all.",
            "Ensure that the letter {q} is used {rel} times.", "The character {q} should be used {rel} times.",
        ),
        held_out=(
            "Please use the letter {q} {rel} times in your reply.", "The letter {q} must show up {rel} times in the text.",
            "Your text must have the letter {q} in it {rel} times.",
        ),
        code="r.lower().count(q0.lower()) {op} n0",
        draw=_draw_letter,
        holds=lambda t, p, _: OPS[p.op](sum(c == p.quotes[0] for c in t.lower()), p.number or 0),
        shape=_shape_letter,
    ),
    Kind(
        name="sections",
        phrasings=(
            "Let each section open with {q} X and use {rel} sections.", "Every section begins with {q} X; there are {rel} sections.", "Use {q} X to mark sections and write {rel} of them.",
            "Your response must have {rel} sections, each beginning with {q} and its number.", "Mark the beginning of each section with {q} X and use {rel} sections.",
            "Divide the answer into {rel} sections headed {q} 1 and so on.", "Write {rel} sections and mark each with {q} and a number.",
            "Structure the text in {rel} parts, each starting with {q} followed by its number.", "There must be {rel} sections, each labelled {q} X.",
            "Use {rel} sections. Each section starts with {q} and a number.", "Label the sections {q} X and have {rel} of them.",
            "Organize the reply in {rel} sections with headings like {q} X.", "Include {rel} sections marked with {q} X.",
            "Give {rel} sections, each under a heading {q} X.", "The text should have {rel} headings of the form {q} X.",
        ),
        held_out=(
            "Split the answer into {rel} sections, each labelled with {q} and its number.", "Have {rel} sections, each one headed {q} X.",
            "Each section should start with {q} X and there should be {rel} sections.",
        ),
        code='len(re.findall(r"(?m)^" + re.escape(q0) + r" \\d+", r)) {op} n0',
        draw=_draw_sections,
        holds=lambda t, p, _: OPS[p.op](_num_lines_starting(t, rf"{p.quotes[0]} [0-9]+"), p.number or 0),
        shape=_shape_sections,
    ),
)  # fmt: skip


# Things that are so or not ----------------------------------------------------------------------------------------------


def _nothing(rng: Random, vocabulary: Vocabulary) -> Params:
    return Params()


def _one_of(feature: str, good: object, *bad: object) -> Callable[[Draft, Params, bool, Random, str], None]:
    """Ask for `good` to follow and for one of `bad` to break."""

    def shape(draft: Draft, params: Params, follow: bool, rng: Random, request: str) -> None:
        draft.ask(feature, good if follow else rng.choice(bad))

    return shape


def _draw_keywords(rng: Random, vocabulary: Vocabulary) -> Params:
    return Params(quotes=tuple(_distinct(rng, vocabulary, rng.choice((1, 1, 2, 2, 3)))))


def _distinct(rng: Random, vocabulary: Vocabulary, count: int) -> list[str]:
    words: list[str] = []
    while len(words) < count:
        word = vocabulary.keyword(rng)
        if not any(word in other or other in word for other in words):
            words.append(word)
    return words


def _shape_present(draft: Draft, params: Params, follow: bool, rng: Random, request: str) -> None:
    missing = set() if follow else set(rng.sample(params.quotes, rng.randint(1, len(params.quotes))))
    for word in params.quotes:
        if word in missing:
            draft.avoid(word)
        else:
            draft.insert(word, times=rng.randint(1, 2))


def _shape_absent(draft: Draft, params: Params, follow: bool, rng: Random, request: str) -> None:
    present = set() if follow else set(rng.sample(params.quotes, rng.randint(1, len(params.quotes))))
    for word in params.quotes:
        if word in present:
            draft.insert(word, times=rng.randint(1, 2))
        else:
            draft.avoid(word)


_OPENINGS = (
    "Dear reader",
    "Once upon a time",
    "To be honest",
    "In short",
    "Hello there",
    "Good news",
    "First of all",
    "Listen",
    "My friend",
)
_CLOSINGS = (
    "Thank you",
    "The end",
    "Is there anything else I can help with",
    "That is all",
    "Have a nice day",
    "Over and out",
    "See you soon",
)
_MARKERS = ("P.S.", "P.P.S", "PS:", "N.B.", "Note:")
_OPTIONS = (
    ("yes", "no"),
    ("agree", "disagree"),
    ("true", "false"),
    ("yes", "no", "maybe"),
    ("red", "green", "blue"),
    ("hot", "cold"),
)


def _draw_from(choices: tuple[str, ...]) -> Callable[[Random, Vocabulary], Params]:
    def draw(rng: Random, vocabulary: Vocabulary) -> Params:
        word = vocabulary.keyword(rng)
        return Params(quotes=(rng.choice((*choices, word.capitalize())),))

    return draw


def _shape_exact(feature: str, others: tuple[str, ...]) -> Callable[[Draft, Params, bool, Random, str], None]:
    def shape(draft: Draft, params: Params, follow: bool, rng: Random, request: str) -> None:
        wrong = [other for other in others if other != params.quotes[0]]
        draft.ask(feature, params.quotes[0] if follow else rng.choice((None, None, *wrong)))

    return shape


def _draw_options(rng: Random, vocabulary: Vocabulary) -> Params:
    return Params(quotes=rng.choice(_OPTIONS))


def _shape_only(draft: Draft, params: Params, follow: bool, rng: Random, request: str) -> None:
    wrong = ("perhaps", "it depends", f"{params.quotes[0]} or so", f"I say {params.quotes[-1]}")
    draft.ask("only", rng.choice(params.quotes) if follow else rng.choice((*wrong, None)))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _shape_line_start(draft: Draft, params: Params, follow: bool, rng: Random, request: str) -> None:
    if follow:
        draft.ask("line_start", params.quotes[0])
    else:
        draft.ask("line_start", rng.choice((None, None, "::")))


def _draw_sentence_words(rng: Random, vocabulary: Vocabulary) -> Params:
    return Params(number=rng.randint(5, 15), op="<=")


def _longest_sentence(text: str) -> int:
    return max(len(s.split()) for s in re.split(r"[.!?]", text))


PLAIN = (
    Kind(
        name="no commas",
        phrasings=(
            "Do not use any commas.", "Avoid commas entirely.", "No commas are allowed.", "Your response must not contain commas.",
            "Refrain from using commas.", "Write without commas.", "Please don't use a single comma.", "The use of commas is forbidden.",
            "Make sure there are no commas in your answer.", "Commas are not permitted in the response.", "Answer without using any commas.",
            "Never use a comma.", "In your entire response, refrain from the use of any commas.", "Leave out all commas.",
        ),
        held_out=("Your answer should not have any commas in it.", "Commas must not be used.", "There must be no comma in the text.", "Do not put commas in your reply."),
        code='"," not in r', draw=_nothing, holds=lambda t, p, _: t.count(",") == 0, shape=_one_of("commas", False, True),
    ),
    Kind(
        name="all capitals",
        phrasings=(
            "Lowercase is forbidden.", "Small letters may not appear.", "There must be no lowercase letters.", "Lowercase letters are not allowed anywhere.", "Do without lowercase letters.", "Small letters are forbidden.", "Everything has to be capitalized.",
            "Your entire response should be in English capital letters.", "Write in all capital letters.", "Use only uppercase letters.", "Answer in ALL CAPS.",
            "Everything must be uppercase.", "Use capital letters only.", "The whole reply should be in capitals.", "No lowercase letters are allowed.",
            "Write everything in upper case.", "Make your whole answer uppercase.", "Please respond in all caps.", "Do not use any lowercase letters.",
            "Your text must be fully capitalized.", "Type the entire answer with caps lock on.",
        ),
        held_out=("The entire answer must be written in capital letters.", "Respond using uppercase only.", "Your whole text should be in all caps.", "Lowercase letters must not be used."),
        code="r.isupper()", draw=_nothing, holds=lambda t, p, _: t == t.upper() and t != t.lower(), shape=_one_of("case", "upper", "lower", "normal"),
    ),
    Kind(
        name="all lowercase",
        phrasings=(
            "Capitals are forbidden.", "Uppercase letters may not appear.", "There must be no capital letters.", "Capital letters are not allowed anywhere.", "Do without capital letters.", "Uppercase is forbidden.", "Nothing may be capitalized.",
            "Your entire response should be in lowercase letters.", "Write in all lowercase letters.", "Use only lowercase letters.", "No capital letters are allowed.",
            "Everything must be lowercase.", "Use small letters only.", "The whole reply should be in lower case.", "Do not use any capital letters.",
            "Write everything in lower case.", "Make your whole answer lowercase.", "Please respond in all lowercase.", "Avoid uppercase letters entirely.",
            "Your text must not contain any capital letters.", "Never use an uppercase letter.",
        ),
        held_out=("The entire answer must be written in lowercase letters.", "Respond using lowercase only.", "Your whole text should be in small letters.", "Capital letters must not be used."),
        code="r.islower()", draw=_nothing, holds=lambda t, p, _: t == t.lower() and t != t.upper(), shape=_one_of("case", "lower", "upper", "normal"),
    ),
    Kind(
        name="keywords",
        phrasings=(
            "The reply is to contain {qs}.", "There must be a mention of {qs}.", "Make sure {qs} come up.", "Take care to mention {qs}.", "Use {qs} when you write.", "Be careful to include {qs}.",
            "Include the keywords {qs} in your response.", "Use the words {qs}.", "Your answer must contain {qs}.", "Make sure to mention {qs}.",
            "The words {qs} must appear in the text.", "Be sure to include {qs}.", "The response should contain the keywords {qs}.", "Mention {qs} somewhere.",
            "Please use {qs} in your answer.", "Work {qs} into your reply.", "Do not forget to mention {qs}.", "Ensure that your text includes {qs}.",
            "The terms {qs} have to be included.", "I want you to use {qs} in the text.", "Include keywords {qs}.", "Don't leave out {qs}.",
        ),
        held_out=("Your text should make use of the words {qs}.", "Please be sure to mention {qs} in your reply.", "The answer has to include the terms {qs}.", "You must use {qs} in your response."),
        code='all(re.search(r"\\b" + re.escape(k) + r"\\b", r, re.I) for k in qs)', draw=_draw_keywords,
        holds=lambda t, p, _: all(_occurrences(q, t) for q in p.quotes), shape=_shape_present,
    ),
    Kind(
        name="forbidden words",
        phrasings=(
            "Be careful not to mention {qs}.", "Try not to use {qs}.", "Take care not to say {qs}.", "{qs} must be left out.", "Do without {qs}.", "Make sure {qs} do not come up.", "There must be no mention of {qs}.", "Your reply is not to contain {qs}.",
            "Do not include the keywords {qs} in your response.", "Do not use the words {qs}.", "Your answer must not contain {qs}.", "Avoid the words {qs}.",
            "The words {qs} must not appear in the text.", "Never mention {qs}.", "The response should not contain {qs}.", "Leave out {qs}.",
            "Please don't use {qs} in your answer.", "Keep {qs} out of your reply.", "Write it without the words {qs}.", "Refrain from using {qs}.",
            "The terms {qs} are forbidden.", "{qs} are not allowed in the text.", "Make sure that you do not mention {qs}.", "Exclude the words {qs}.",
        ),
        held_out=("Your text should not make use of the words {qs}.", "Please be sure not to mention {qs} in your reply.", "The answer must leave out the terms {qs}.", "You must not use {qs} in your response."),
        code='not any(re.search(r"\\b" + re.escape(k) + r"\\b", r, re.I) for k in qs)', draw=_draw_keywords,
        holds=lambda t, p, _: not any(_occurrences(q, t) for q in p.quotes), shape=_shape_absent,
    ),
    Kind(
        name="start",
        phrasings=(
            "Write {q} first, then go on.", "The text opens with {q}.", "Use {q} to start your answer.",
            "Start your response with {q}.", "Begin with {q}.", "The first words must be {q}.", "Your answer should start with {q}.", "Open with the phrase {q}.",
            "Your reply has to begin with {q}.", "The response must start with the phrase {q}.", "Let the text start with {q}.", "Make {q} the beginning of your answer.",
            "Put {q} at the very start.", "Please begin your text with {q}.", "The opening words are to be {q}.",
        ),
        held_out=("Your text must begin with the words {q}.", "Start the answer off with {q}.", "At the very beginning, write {q}.", "{q} should be how your response starts."),
        code="r.strip().startswith(q0)", draw=_draw_from(_OPENINGS), holds=lambda t, p, _: t.lstrip()[: len(p.quotes[0])] == p.quotes[0],
        shape=_shape_exact("start", _OPENINGS),
    ),
    Kind(
        name="end",
        phrasings=(
            "Write {q} last.", "The text closes with {q}.", "Use {q} to end your answer.", "Nothing may come after {q} at the end.",
            "Finish your response with {q}.", "End with {q}.", "The last words must be {q}.", "Your answer should end with {q}.", "Close with the phrase {q}.",
            "Your reply has to finish with {q}.", "The response must end with the phrase {q}.", "Let the text end with {q}.", "Make {q} the ending of your answer.",
            "Put {q} at the very end.", "Please finish your text with {q}. No other words should follow.", "The closing words are to be {q}.",
        ),
        held_out=("Your text must finish with the words {q}.", "End the answer with {q} and nothing after it.", "At the very end, write {q}.", "{q} should be how your response ends."),
        code="r.strip().endswith(q0)", draw=_draw_from(_CLOSINGS), holds=lambda t, p, _: re.search(re.escape(p.quotes[0]) + r"\s*\Z", t) is not None,
        shape=_shape_exact("end", _CLOSINGS),
    ),
    Kind(
        name="quotation",
        phrasings=(
            "Wrap your entire response with double quotation marks.", "Put the whole answer in double quotes.", "Enclose your reply in quotation marks.",
            "Your response should be surrounded by double quotation marks.", "The entire text must be inside quotation marks.", "Quote your whole response.",
            "Start and end the answer with a double quotation mark.", "Place double quotes around the full response.", "Everything should stand between double quotation marks.",
            "Use double quotation marks around your complete answer.",
        ),
        held_out=("Surround the complete reply with double quotes.", "The full answer should be wrapped in quotation marks.", "Put quotation marks around the entire response."),
        code="r.strip().startswith('\"') and r.strip().endswith('\"')", draw=_nothing,
        holds=lambda t, p, _: len(t.strip()) > 0 and t.strip()[0] == t.strip()[-1] == '"', shape=_one_of("quoted", True, False),
    ),
    Kind(
        name="json",
        phrasings=(
            "Entire output should be wrapped in JSON format.", "Answer in JSON.", "Your response must be valid JSON.", "Format the whole reply as JSON.", "Return a JSON object.",
            "Please respond with JSON only.", "Use the JSON format for your answer.", "The output has to be valid JSON.", "Give the answer as a JSON object.",
            "Write everything as valid JSON.", "I need the response in JSON format.", "Only JSON is accepted.",
        ),
        held_out=("Your whole answer should be a valid JSON object.", "Respond in the JSON format.", "The reply must be formatted as JSON."),
        code="is_json(r)", draw=_nothing, holds=lambda t, p, _: _is_json(t), shape=_one_of("json", True, False),
    ),
    Kind(
        name="title",
        phrasings=(
            "Your answer must contain a title, wrapped in double angular brackets, such as <<poem of joy>>.", "Include a title in double angular brackets like <<title>>.",
            "Give the text a title wrapped in <<>>.", "Add a title inside double angle brackets.", "There must be a title such as <<my title>>.", "Put a title in << >> at the top.",
            "The response needs a title in double angle brackets.", "Provide a title wrapped in double angle brackets, i.e. <<title>>.", "Write a title between << and >>.",
            "Make sure it has a title in double angular brackets.",
        ),
        held_out=("The text should have a title in double angle brackets such as <<a day>>.", "Add a title wrapped in << and >>.", "Have a title inside double angular brackets."),
        code='bool(re.search(r"<<[^\\n]+>>", r))', draw=_nothing, holds=lambda t, p, _: any("<<" in x and ">>" in x.split("<<", 1)[1][1:] for x in t.split("\n")),
        shape=_one_of("title", True, False),
    ),
    Kind(
        name="postscript",
        phrasings=(
            "At the end of your response, please explicitly add a postscript starting with {q}.", "Add a postscript starting with {q}.", "Include a postscript marked {q}.",
            "There should be a postscript that begins with {q}.", "Finish with a postscript starting with {q}.", "After the text, add a postscript with {q}.",
            "Your reply needs a postscript introduced by {q}.", "Append a postscript beginning with {q}.", "Write a postscript at the end, marked with {q}.", "Close with a {q} postscript.",
        ),
        held_out=("Please put a postscript starting with {q} at the end.", "A postscript marked {q} should be added.", "End your response with a postscript beginning with {q}."),
        code='bool(re.search(r"(?m)^" + re.escape(q0), r))', draw=lambda rng, v: Params(quotes=(rng.choice(_MARKERS),)),
        holds=lambda t, p, _: any(x.startswith(p.quotes[0]) for x in t.split("\n")), shape=_shape_exact("postscript", _MARKERS),
    ),
    Kind(
        name="repeat request",
        phrasings=(
            "First repeat the request above word for word without change, then give your answer.", "Before answering, repeat the request exactly as it is.",
            "Copy the request above at the beginning of your reply.", "Repeat the request without change before you answer.", "Start by repeating the request word for word.",
            "Your reply must first repeat the request above, then answer it.", "Say the request again word for word and only then answer.", "Repeat the question above first, unchanged.",
            "Begin by copying the request word for word.", "Restate the request exactly, then respond.",
        ),
        held_out=("Before you give your answer, repeat the request above unchanged.", "First copy the request word for word, then answer it.", "Start your reply by repeating the request exactly."),
        code='r.strip().startswith(prompt.split("\\n")[0].strip())', draw=_nothing, holds=lambda t, p, request: t.strip()[: len(request)] == request,
        shape=lambda d, p, follow, rng, request: d.ask("start", request if follow else rng.choice((None, request[: len(request) // 2], "You asked"))),
    ),
    Kind(
        name="two answers",
        phrasings=(
            "Give two different responses, separated by 6 asterisk symbols: ******.", "Write two answers with ****** between them.", "Provide 2 versions separated by ******.",
            "Separate your two responses by ******.", "Offer two different answers and put ****** between them.", "Answer twice, with the separator ****** in between.",
            "Two responses are needed, divided by ******.", "I want 2 different replies separated by six asterisks ******.", "Give me two texts with the line ****** between them.",
            "Respond with two alternatives separated by ******.",
        ),
        held_out=("Provide two different replies with ****** between the two.", "Your two answers should be separated by ******.", "Write 2 responses and divide them by ******."),
        code='len([x for x in r.split("******") if x.strip()]) == 2', draw=_nothing,
        holds=lambda t, p, _: sum(bool(x.strip()) for x in re.split(r"\*{6}", t)) == 2, shape=_one_of("separator", "******", None, "***", "---"),
    ),
    Kind(
        name="no digits",
        phrasings=(
            "Do not use any digits.", "Avoid digits entirely.", "No digits are allowed.", "Your response must not contain digits.", "Refrain from using digits.", "Write without any digits.",
            "Spell out every number, without digits.", "The use of digits is forbidden.", "Make sure there are no digits in your answer.", "Numerals are not permitted in the response.",
            "Never use a digit.", "Leave out all digits.",
        ),
        held_out=("Your answer should not have any digits in it.", "Digits must not be used.", "There must be no digit in the text."),
        code='not re.search(r"\\d", r)', draw=_nothing, holds=lambda t, p, _: not any(c.isdigit() for c in t),
        shape=lambda d, p, follow, rng, request: None if follow else d.insert(rng.choice(("7", "42", "1999")), times=rng.randint(1, 2)),
    ),
    Kind(
        name="choose one",
        phrasings=(
            "Answer with one of {qs} and nothing else.", "Choose exactly one of {qs}.", "Your answer must be one of the following options: {qs}.", "Reply only with one of {qs}.",
            "Pick one: {qs}. Say nothing else.", "Respond with one of these words only: {qs}.", "The whole answer must be one of {qs}.", "Select a single option from {qs}.",
            "Answer with exactly one of the options {qs}.", "Only answer with one of {qs}.",
        ),
        held_out=("Your reply should be one of {qs} and nothing else.", "Respond only with one of the options {qs}.", "Choose a single answer from {qs}."),
        code="r.strip() in qs", draw=_draw_options, holds=lambda t, p, _: any(t.strip() == q for q in p.quotes), shape=_shape_only,
    ),
    Kind(
        name="ends as question",
        phrasings=(
            "End your response with a question.", "The last character must be a question mark.", "Finish with a question mark.", "Close your answer with a question.",
            "Your response should end with a question mark.", "Let the text end in a question.", "The final sentence must be a question.", "Make the last sentence a question.",
            "Your reply has to end with a question mark.", "Conclude with a question.",
        ),
        held_out=("The text must end with a question mark.", "Finish your answer with a question.", "Your final sentence should be a question."),
        code='r.strip().endswith("?")', draw=_nothing, holds=lambda t, p, _: t.rstrip()[-1:] == "?", shape=_one_of("question", True, False),
    ),
    Kind(
        name="line start",
        phrasings=(
            "Start every line with {q}.", "Each line must begin with {q}.", "Every line of your answer should start with {q}.", "Begin each line with {q}.", "Put {q} at the start of each line.",
            "All lines have to start with {q}.", "Let every line begin with {q}.", "Prefix each line with {q}.", "Your reply should have {q} at the beginning of every line.", "Each line starts with {q}.",
        ),
        held_out=("Every single line must start with {q}.", "Have each line of the text begin with {q}.", "Put {q} at the beginning of all lines."),
        code="all(x.startswith(q0) for x in r.splitlines() if x.strip())", draw=lambda rng, v: Params(quotes=(rng.choice((">", "->", "=>", "~", "//", "+")),)),
        holds=lambda t, p, _: not [x for x in t.split("\n") if x.strip() and x[: len(p.quotes[0])] != p.quotes[0]], shape=_shape_line_start,
    ),
    Kind(
        name="short sentences",
        phrasings=(
            "A sentence may have {n} words at most.", "Do not let a sentence run over {n} words.", "Sentences with more than {n} words are not allowed.",
            "No sentence should have more than {n} words.", "Each sentence must have at most {n} words.", "Keep every sentence to {n} words or fewer.", "Sentences may not be longer than {n} words.",
            "Use sentences of up to {n} words each.", "Every sentence has to have no more than {n} words.", "Limit each sentence to {n} words.", "Never write a sentence longer than {n} words.",
            "All sentences should be {n} words or shorter.", "Let no sentence exceed {n} words.",
        ),
        held_out=("Every sentence should be at most {n} words long.", "Do not write a sentence with more than {n} words.", "Each sentence may have up to {n} words."),
        code='max(len(x.split()) for x in re.split(r"[.!?]", r)) <= n0', draw=_draw_sentence_words, holds=lambda t, p, _: _longest_sentence(t) <= (p.number or 0),
        shape=lambda d, p, follow, rng, request: d.ask("sentence_words", max(2, (p.number or 0) - rng.randint(0, 2)) if follow else (p.number or 0) + rng.randint(1, 4)),
    ),
)  # fmt: skip

KINDS: tuple[Kind, ...] = (*COUNTED, *COUNTED_QUOTED, *PLAIN)
