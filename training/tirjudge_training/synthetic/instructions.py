"""Verifiable instructions in the style of IFEval (arXiv 2311.07911).

Each kind has three parts that must agree, which a test checks:

- `holds` is the ground truth, computed from the parameters.
- `code` is the line of Python that the judge learns to write. It reads the parameters from the prompt: `n0` and `q0`
  are placeholders for expressions such as "the third number in the prompt" and "its first quotation".
- `shape` sets the features of a response that follows or breaks the instruction.

The sentences are in `phrasings.toml`.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from tirjudge_training.synthetic.drafting import Draft
from tirjudge_training.synthetic.paraphrase import paraphrase
from tirjudge_training.synthetic.phrasings import COUNTS, INSTRUCTIONS, RELATIONS, Phrasings, normalized
from tirjudge_training.synthetic.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Parameters of one instruction."""

    number: int | None = None
    """The number in the instruction. None: the instruction has no number."""
    op: str = "=="
    """Comparison of the count to `number`: one of >=, <=, ==, <, >."""
    quotes: tuple[str, ...] = ()
    """Quoted texts of the instruction, in the order in which the sentence has them."""


Shape = Callable[[Draft, Params, bool, Random, str], None]
"""(draft, params, follow, rng, request): set the features of a response that follows or breaks the instruction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionKind:
    """One kind of instruction."""

    name: str
    """Name of the kind, as the judge writes it in its plan."""
    nouns: tuple[str, ...] = ()
    """Nouns for what is counted, for the sentence templates that all counting instructions share. Empty: not used for this
    kind."""
    code: str
    """Python expression over the response `r`: n0 is the instruction's number, q0 its first quotation, qs all
    quotations."""
    draw: Callable[[Random, Vocabulary], Params]
    holds: Callable[[str, Params, str], bool]
    """(response, params, request) -> whether the response follows; `request` is the task without its instructions."""
    shape: Shape

    @property
    def phrasings(self) -> Phrasings:
        """Sentences for this kind alone."""
        return INSTRUCTIONS[self.name]


OPS: dict[str, Callable[[int, int], bool]] = dict(
    zip((">=", "<=", "==", "<", ">"), (operator.ge, operator.le, operator.eq, operator.lt, operator.gt), strict=True)
)


def phrasing(kind: InstructionKind, params: Params, *, rng: Random, held_out: bool) -> str:
    """Draw a sentence for the instruction, with placeholders for its number and quotations."""

    def reworded(sentence: str) -> str:
        if "{noun}" in sentence:
            sentence = sentence.replace("{noun}", rng.choice(kind.nouns))
        return paraphrase(sentence, rng=rng) if not held_out and rng.random() < 0.7 else sentence

    # Each noun is as likely as all of this kind's own sentences together.
    if rng.random() < len(kind.nouns) / (len(kind.nouns) + 1):
        phrasings = COUNTS[params.op if rng.random() < 0.3 else "any"]
    else:
        phrasings = kind.phrasings
    sentence = phrasings.pick(rng=rng, held_out=held_out, reword=reworded, apart=_held_out_sentences())
    if "{rel}" in sentence:
        relation = RELATIONS[params.op].pick(rng=rng, held_out=held_out and rng.random() < 0.5)
        sentence = sentence.replace("{rel}", relation)
    return sentence


@cache
def _held_out_sentences() -> frozenset[str]:
    """Return the held-out sentences of all kinds, normalized. Training must not produce any of them by chance."""
    own = [sentence for kind in KINDS for sentence in kind.phrasings.held_out]
    nouns = {noun for kind in KINDS for noun in kind.nouns}
    shared = [sentence for phrasings in COUNTS.values() for sentence in phrasings.held_out]
    return frozenset(map(normalized, (*own, *(s.replace("{noun}", noun) for s in shared for noun in nouns))))


def count_for(op: str, number: int, *, follow: bool, rng: Random, least: int = 0) -> int:
    """Draw a count for which `count op number` is `follow`; `least` is the minimum, and the fallback if no count
    fits."""
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
) -> InstructionKind:
    """Return a kind that compares a count to a number.

    Args:
        name: Name of the kind.
        nouns: Nouns for what is counted, for the phrasings that all counting instructions share.
        code: Python expression that counts them in `r`.
        count: Ground truth, implemented differently from `code`.
        feature: Feature of a draft that sets the count.
        span: Smallest and largest number in an instruction.
        step: Step between the numbers.
        least: Smallest count that a text can have.
    """

    def draw(rng: Random, vocabulary: Vocabulary) -> Params:
        op = rng.choice((">=", ">=", ">=", "<=", "<=", "==", "==", "==", "<", ">"))
        number = rng.randrange(span[0], span[1] + 1, step)
        return Params(number=number + (op == "<" and span[0] == least), op=op)

    def holds(response: str, params: Params, request: str) -> bool:
        assert params.number is not None
        return OPS[params.op](count(response), params.number)

    def shape(draft: Draft, params: Params, follow: bool, rng: Random, request: str) -> None:
        assert params.number is not None
        draft.ask(feature, count_for(params.op, params.number, follow=follow, rng=rng, least=least))

    return InstructionKind(name=name, nouns=nouns, code=f"{code} {{op}} n0", draw=draw, holds=holds, shape=shape)


def _marks(
    name: str,
    nouns: tuple[str, ...],
    *,
    code: str,
    count: Callable[[str], int],
    mark: Callable[[int], str],
    span: tuple[int, int],
) -> InstructionKind:
    """Return a counting kind whose items are inserted into the response as words: placeholders, hashtags, highlights."""
    base = _counted(name, nouns, code=code, count=count, feature=name, span=span)

    def shape(draft: Draft, params: Params, follow: bool, rng: Random, request: str) -> None:
        assert params.number is not None
        times = count_for(params.op, params.number, follow=follow, rng=rng)
        draft.ask(name, times)
        draft.inserted += [mark(i) for i in range(times)]

    return replace(base, shape=shape)


def _num_sentences(text: str) -> int:
    return sum(c in ".!?" and (i + 1 == len(text) or text[i + 1].isspace()) for i, c in enumerate(text))


def _num_lines_starting(text: str, pattern: str) -> int:
    return sum(re.match(pattern, line) is not None for line in text.split("\n"))


COUNTED = (
    _counted("words", ("words",), code="len(r.split())",
        count=lambda t: len(re.findall(r"\S+", t)), feature="words", span=(8, 60), least=1),
    _counted("sentences", ("sentences",), code='len(re.findall(r"[.!?](?=\\s|$)", r))',
        count=_num_sentences, feature="sentences", span=(1, 9), least=1),
    _counted("paragraphs", ("paragraphs",), code='len([p for p in r.split("\\n\\n") if p.strip()])',
        count=lambda t: sum(bool(p.strip()) for p in re.split(r"\n\n", t)), feature="paragraphs", span=(1, 6), least=1),
    _counted("bullets", ("bullet points", "bullets", "bulleted items"), code='len(re.findall(r"(?m)^\\s*[*-] ", r))',
        count=lambda t: _num_lines_starting(t, r"\s*[*-] "), feature="bullets", span=(1, 8)),
    _counted("numbered items", ("numbered items", "numbered points", "numbered steps"), code='len(re.findall(r"(?m)^\\s*\\d+[.)] ", r))',
        count=lambda t: _num_lines_starting(t, r"\s*\d+[.)] "), feature="numbered", span=(1, 8)),
    _counted("lines", ("lines",), code="len([x for x in r.splitlines() if x.strip()])",
        count=lambda t: sum(bool(x.strip()) for x in t.splitlines()), feature="lines", span=(1, 8), least=1),
    _counted("characters", ("characters",), code="len(r)",
        count=lambda t: sum(1 for _ in t), feature="characters", span=(60, 300), step=10, least=1),
    _counted("question marks", ("question marks",), code='r.count("?")',
        count=lambda t: len(re.findall(r"\?", t)), feature="question_marks", span=(1, 6)),
    _counted("exclamation marks", ("exclamation marks", "exclamation points"), code='r.count("!")',
        count=lambda t: len(re.findall("!", t)), feature="exclamation_marks", span=(1, 6)),
    _marks("placeholders", ("placeholders", "placeholders in square brackets", "placeholders such as [address]"), code='len(re.findall(r"\\[.+?\\]", r))',
        count=lambda t: len(re.findall(r"\[[^\[\]\n]+\]", t)), mark=lambda i: ("[name]", "[address]", "[date]", "[city]", "[phone]")[i % 5], span=(1, 6)),
    _marks("highlights", ("highlighted sections", "highlighted phrases", "highlighted parts"), code='len(re.findall(r"\\*[^*\\n]+\\*", r))',
        count=lambda t: len(re.findall(r"\*[^*\n]+?\*", t)), mark=lambda i: ("*note*", "*key point*", "*fact*")[i % 3], span=(1, 6)),
    _marks("hashtags", ("hashtags", "hashtags such as #news"), code='len(re.findall(r"#\\w+", r))',
        count=lambda t: len(re.findall(r"#\w+", t)), mark=lambda i: ("#fun", "#news", "#today", "#life")[i % 4], span=(1, 6)),
    _marks("capital words", ("words in all capital letters", "fully capitalized words", "words in all caps"), code='len(re.findall(r"\\b[A-Z]{2,}\\b", r))',
        count=lambda t: len(re.findall(r"\b[A-Z][A-Z]+\b", t)), mark=lambda i: ("NOW", "NEVER", "GOOD", "ALWAYS")[i % 4], span=(1, 6)),
    _marks("parentheses", ("parentheses", "remarks in parentheses"), code='r.count("(")',
        count=lambda t: t.count("("), mark=lambda i: ("(see below)", "(indeed)", "(of course)")[i % 3], span=(1, 5)),
    _marks("numbers", ("numbers written in digits", "numbers in digits"), code='len(re.findall(r"\\d+", r))',
        count=lambda t: len(re.findall(r"[0-9]+", t)), mark=lambda i: ("7", "42", "365", "12")[i % 4], span=(1, 5)),
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
    words = (f"{letter}o", f"a{letter}a", f"e{letter}i", f"o{letter}")
    draft.inserted += [words[i % 4] for i in range(times)]


def _draw_sections(rng: Random, vocabulary: Vocabulary) -> Params:
    marker = rng.choice(("Section", "PARAGRAPH", "Part", "SECTION", "Chapter", "Day", "Step", "Scene"))
    return Params(number=rng.randint(1, 5), op=rng.choice((">=", "==", "<=", ">=")), quotes=(marker,))


def _shape_sections(draft: Draft, params: Params, follow: bool, rng: Random, request: str) -> None:
    assert params.number is not None
    count = count_for(params.op, params.number, follow=follow, rng=rng)
    draft.ask("sections", (params.quotes[0], count))


COUNTED_QUOTED = (
    InstructionKind(name="word frequency", code='len(re.findall(r"\\b" + re.escape(q0) + r"\\b", r, re.I)) {op} n0',
        draw=_draw_frequency, holds=lambda t, p, _: OPS[p.op](_occurrences(p.quotes[0], t), p.number or 0), shape=_shape_frequency),
    InstructionKind(name="letter frequency", code="r.lower().count(q0.lower()) {op} n0",
        draw=_draw_letter, holds=lambda t, p, _: OPS[p.op](sum(c == p.quotes[0] for c in t.lower()), p.number or 0), shape=_shape_letter),
    InstructionKind(name="sections", code='len(re.findall(r"(?m)^" + re.escape(q0) + r" \\d+", r)) {op} n0',
        draw=_draw_sections, holds=lambda t, p, _: OPS[p.op](_num_lines_starting(t, rf"{p.quotes[0]} [0-9]+"), p.number or 0), shape=_shape_sections),
)  # fmt: skip


# Instructions without a count -------------------------------------------------------------------------------------------


def _nothing(rng: Random, vocabulary: Vocabulary) -> Params:
    return Params()


def _one_of(feature: str, good: object, *bad: object) -> Shape:
    """Set the feature to `good` to follow the instruction, or to one of `bad` to break it."""

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


def _shape_words(*, present: bool) -> Shape:
    """Require or forbid the quoted words. A response that breaks the instruction gets at least one word wrong."""

    def shape(draft: Draft, params: Params, follow: bool, rng: Random, request: str) -> None:
        wrong = set() if follow else set(rng.sample(params.quotes, rng.randint(1, len(params.quotes))))
        for word in params.quotes:
            if (word in wrong) is present:
                draft.avoid(word)
            else:
                draft.insert(word, times=rng.randint(1, 2))

    return shape


_OPENINGS = tuple(
    "Dear reader|Once upon a time|To be honest|In short|Hello there|Good news|First of all|Listen|My friend".split("|")
)
_CLOSINGS = tuple(
    "Thank you|The end|Is there anything else I can help with|That is all|Have a nice day|Over and out|See you soon".split(
        "|"
    )
)
_MARKERS = ("P.S.", "P.P.S", "PS:", "N.B.", "Note:")
_OPTIONS = tuple(
    tuple(options.split())
    for options in ("yes no", "agree disagree", "true false", "yes no maybe", "red green blue", "hot cold")
)


def _draw_from(choices: tuple[str, ...]) -> Callable[[Random, Vocabulary], Params]:
    def draw(rng: Random, vocabulary: Vocabulary) -> Params:
        word = vocabulary.keyword(rng)
        return Params(quotes=(rng.choice((*choices, word.capitalize())),))

    return draw


def _shape_exact(feature: str, others: tuple[str, ...]) -> Shape:
    def shape(draft: Draft, params: Params, follow: bool, rng: Random, request: str) -> None:
        wrong = [other for other in others if other != params.quotes[0]]
        draft.ask(feature, params.quotes[0] if follow else rng.choice((None, None, *wrong)))

    return shape


def _shape_only(draft: Draft, params: Params, follow: bool, rng: Random, request: str) -> None:
    wrong = ("perhaps", "it depends", f"{params.quotes[0]} or so", f"I say {params.quotes[-1]}")
    draft.ask("only", rng.choice(params.quotes) if follow else rng.choice((*wrong, None)))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


PLAIN = (
    InstructionKind(name="no commas", code='"," not in r',
        draw=_nothing, holds=lambda t, p, _: t.count(",") == 0, shape=_one_of("commas", False, True)),
    InstructionKind(name="all capitals", code="r.isupper()",
        draw=_nothing, holds=lambda t, p, _: t == t.upper() and t != t.lower(), shape=_one_of("case", "upper", "lower", "normal")),
    InstructionKind(name="all lowercase", code="r.islower()",
        draw=_nothing, holds=lambda t, p, _: t == t.lower() and t != t.upper(), shape=_one_of("case", "lower", "upper", "normal")),
    InstructionKind(name="keywords", code='all(re.search(r"\\b" + re.escape(k) + r"\\b", r, re.I) for k in qs)',
        draw=_draw_keywords, holds=lambda t, p, _: all(_occurrences(q, t) for q in p.quotes), shape=_shape_words(present=True)),
    InstructionKind(name="forbidden words", code='not any(re.search(r"\\b" + re.escape(k) + r"\\b", r, re.I) for k in qs)',
        draw=_draw_keywords, holds=lambda t, p, _: not any(_occurrences(q, t) for q in p.quotes), shape=_shape_words(present=False)),
    InstructionKind(name="start", code="r.strip().startswith(q0)",
        draw=_draw_from(_OPENINGS), holds=lambda t, p, _: t.lstrip()[: len(p.quotes[0])] == p.quotes[0], shape=_shape_exact("start", _OPENINGS)),
    InstructionKind(name="end", code="r.strip().endswith(q0)",
        draw=_draw_from(_CLOSINGS), holds=lambda t, p, _: re.search(re.escape(p.quotes[0]) + r"\s*\Z", t) is not None, shape=_shape_exact("end", _CLOSINGS)),
    InstructionKind(name="quotation", code="r.strip().startswith('\"') and r.strip().endswith('\"')",
        draw=_nothing, holds=lambda t, p, _: len(t.strip()) > 0 and t.strip()[0] == t.strip()[-1] == '"', shape=_one_of("quoted", True, False)),
    InstructionKind(name="json", code="is_json(r)",
        draw=_nothing, holds=lambda t, p, _: _is_json(t), shape=_one_of("json", True, False)),
    InstructionKind(name="title", code='bool(re.search(r"<<[^\\n]+>>", r))',
        draw=_nothing, holds=lambda t, p, _: any("<<" in x and ">>" in x.split("<<", 1)[1][1:] for x in t.split("\n")), shape=_one_of("title", True, False)),
    InstructionKind(name="postscript", code='bool(re.search(r"(?m)^" + re.escape(q0), r))',
        draw=lambda rng, v: Params(quotes=(rng.choice(_MARKERS),)), holds=lambda t, p, _: any(x.startswith(p.quotes[0]) for x in t.split("\n")), shape=_shape_exact("postscript", _MARKERS)),
    InstructionKind(name="repeat request", code='r.strip().startswith(prompt.split("\\n")[0].strip())',
        draw=_nothing, holds=lambda t, p, request: t.strip()[: len(request)] == request, shape=lambda d, p, follow, rng, request: d.ask("start", request if follow else rng.choice((None, request[: len(request) // 2], "You asked")))),
    InstructionKind(name="two answers", code='len([x for x in r.split("******") if x.strip()]) == 2',
        draw=_nothing, holds=lambda t, p, _: sum(bool(x.strip()) for x in re.split(r"\*{6}", t)) == 2, shape=_one_of("separator", "******", None, "***", "---")),
    InstructionKind(name="no digits", code='not re.search(r"\\d", r)',
        draw=_nothing, holds=lambda t, p, _: not any(c.isdigit() for c in t), shape=lambda d, p, follow, rng, request: None if follow else d.insert(rng.choice(("7", "42", "1999")), times=rng.randint(1, 2))),
    InstructionKind(name="choose one", code="r.strip() in qs",
        draw=lambda rng, v: Params(quotes=rng.choice(_OPTIONS)), holds=lambda t, p, _: any(t.strip() == q for q in p.quotes), shape=_shape_only),
    InstructionKind(name="ends as question", code='r.strip().endswith("?")',
        draw=_nothing, holds=lambda t, p, _: t.rstrip()[-1:] == "?", shape=_one_of("question", True, False)),
    InstructionKind(name="line start", code="all(x.startswith(q0) for x in r.splitlines() if x.strip())",
        draw=lambda rng, v: Params(quotes=(rng.choice((">", "->", "=>", "~", "//", "+")),)), holds=lambda t, p, _: not [x for x in t.split("\n") if x.strip() and x[: len(p.quotes[0])] != p.quotes[0]], shape=lambda d, p, follow, rng, request: d.ask("line_start", p.quotes[0] if follow else rng.choice((None, None, "::")))),
    InstructionKind(name="short sentences", code='max(len(x.split()) for x in re.split(r"[.!?]", r)) <= n0',
        draw=lambda rng, v: Params(number=rng.randint(5, 15), op="<="), holds=lambda t, p, _: max(len(s.split()) for s in re.split(r"[.!?]", t)) <= (p.number or 0), shape=lambda d, p, follow, rng, request: d.ask("sentence_words", max(2, (p.number or 0) - rng.randint(0, 2)) if follow else (p.number or 0) + rng.randint(1, 4))),
)  # fmt: skip

KINDS: tuple[InstructionKind, ...] = (*COUNTED, *COUNTED_QUOTED, *PLAIN)
