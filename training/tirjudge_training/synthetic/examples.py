"""Synthetic items: a prompt, responses of known quality, and the judgment that a model should learn to write."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from types import SimpleNamespace
from typing import Any

from tirjudge.formats.blocks import OUTPUT_FENCE, bindings, observation_text
from tirjudge.formats.tirjudge_1 import FORMAT
from tirjudge.types import ExecResult, Mode, Outcome, label_of
from tirjudge_evidence.tasks.generating import KINDS as KINDS_OF_EVIDENCE
from tirjudge_evidence.tasks.generating import EvidenceTask, draw_tasks
from tirjudge_training.instructions.composing import composer_of
from tirjudge_training.instructions.programs import program as program_of_checks
from tirjudge_training.instructions.responses import response_to
from tirjudge_training.instructions.written import HELD_OUT_WRITERS, TRAINING_WRITERS
from tirjudge_training.synthetic.code import CHECK, ask_code, implementation
from tirjudge_training.synthetic.conduct import draw_conduct, draw_task
from tirjudge_training.synthetic.drafting import Conflict, Draft, write
from tirjudge_training.synthetic.instructions import KINDS, InstructionKind, Params, phrasing
from tirjudge_training.synthetic.numeric import NUMERIC, NumericKind, explained, wrong_answer
from tirjudge_training.synthetic.programs import NUMBER_WORDS, Places, program, run_trusted
from tirjudge_training.synthetic.vocabulary import HELD_OUT, TRAINING, Vocabulary

SCORE_SPAN = 9
"""Range of scores above 1: a response that follows every instruction scores 1 + 9."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticExample:
    """One item with its answer."""

    mode: Mode
    prompt: str
    responses: tuple[str, ...]
    met: tuple[float, ...]
    """Share of the instructions that each response follows, 0 to 1."""
    label: int
    """Index of the best response. If several responses are equally good, the index of the one that the answer names."""
    tools: bool
    """Whether the judge's prompt offers tools."""
    verifiable: bool
    """Whether a program can decide the item."""
    code: str | None
    """The program to write; None if the answer has no program."""
    plan: str
    """Text before the program, or before the verdict if the answer has no program."""
    num_asked: int
    """Number of instructions in the prompt."""
    evidence: tuple[Mapping[str, Any], ...] = ()
    """Stores that come with the request, in the layout of `AttachedStore`."""
    presents_functions: bool = True
    """Whether a prompt with tools presents the functions of programs."""
    output: str | None = None
    """Output of the program, if it is known without running it. None: `segments` runs the program."""

    @property
    def has_one_best(self) -> bool:
        """Whether one response follows more instructions than all others."""
        return sum(share == max(self.met) for share in self.met) == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A piece of a judgment. The loss is computed on text of the model, and not on text of the environment."""

    text: str
    by_model: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """Shares of the kinds of items that are drawn. The remainder is verifiable instructions with tools."""

    numeric: float = 0.13
    """Share of questions with one numeric answer."""
    conduct: float = 0.12
    """Share of prompts where nothing can be computed. Half of them are shown with the prompt that offers tools."""
    code: float = 0.0
    """Share of questions for code, which programs decide with the function `tests`."""
    evidence: float = 0.0
    """Share of questions that programs decide with the functions of the tool `evidence`."""
    evidence_kinds: tuple[str, ...] = KINDS_OF_EVIDENCE
    """Kinds of questions about evidence."""
    written: float = 0.0
    """Share of prompts with instructions as people type them, 86 checks. The held-out ones are another writer's."""
    toolless: float = 0.02
    """Share of verifiable items shown without tools. Their verdict is random, because the model cannot compute it."""
    ties: float = 0.02
    """Share of instruction items in which two responses are equally good."""
    many_instructions: float = 0.55
    """Share of the instruction items that have two or three instructions."""
    long_lists: float = 0.05
    """Share of the listwise items that have more than eight responses."""
    list_size: int | None = None
    """Number of responses of every listwise item. None: random."""
    kinds: tuple[str, ...] | None = None
    """Names of the kinds of instruction to draw from. None: all."""

    @property
    def drawn_kinds(self) -> tuple[InstructionKind, ...]:
        """The kinds of instruction to draw from.

        Raises:
            ValueError: `kinds` contains an unknown name.
        """
        if self.kinds is None:
            return KINDS
        known = {kind.name: kind for kind in KINDS}
        unknown = [name for name in self.kinds if name not in known]
        if unknown:
            raise ValueError(f"kinds: unknown kind of instruction {unknown[0]!r}; valid names are {', '.join(known)}")
        return tuple(known[name] for name in self.kinds)


# Instructions with their parameters placed in a prompt ------------------------------------------------------------------

_QUOTES = (('"', '"'),) * 6 + (("'", "'"),) * 3 + (("“", "”"),)
_MARK = re.compile("[\ue000\ue001](.*?)\ue002", re.DOTALL)


def _instruction_text(kind: InstructionKind, params: Params, *, rng: Random, held_out: bool) -> str:
    """Return the instruction as a sentence. Marks around each parameter allow its position in the prompt to be
    found."""
    sentence = phrasing(kind, params, rng=rng, held_out=held_out)
    left, right = rng.choice(_QUOTES)
    if _can_stand_unquoted(sentence, params) and rng.random() < 0.3:
        left = right = ""
    quoted = [f"{left}\ue001{text}\ue002{right}" for text in params.quotes]
    if params.number is not None:
        spoken = 2 <= params.number <= 12 and rng.random() < 0.25 and "{n}+" not in sentence and "{n}%" not in sentence
        shown = NUMBER_WORDS[params.number - 2] if spoken else str(params.number)
        if params.number == 1:
            sentence = _singular(sentence)
        sentence = sentence.replace("{n}", f"\ue000{shown}\ue002")
    if len(quoted) > 1:
        joined = f"{', '.join(quoted[:-1])}{rng.choice((' and ', ', ', ' and '))}{quoted[-1]}"
    else:
        joined = "".join(quoted)
    sentence = sentence.replace("{qs}", joined).replace("{q}", joined)
    return sentence[:1].upper() + sentence[1:]


def _can_stand_unquoted(sentence: str, params: Params) -> bool:
    """Whether the only quotation is one word after "the word" or "the letter", so that a program finds the word without
    quotation marks."""
    named = re.search(r"(?:word|term|letter)s? \{qs?\}", sentence) is not None
    return named and len(params.quotes) == 1 and re.fullmatch(r"\w+", params.quotes[0]) is not None


def _singular(sentence: str) -> str:
    """Return the sentence with the noun after {n} in the singular. Only the common sentence patterns are changed."""
    return re.sub(
        r"(\{n\} (?:or more |or fewer |or less )?(?:\w+ )?\w+?)s\b(?! in| such| written)", r"\1", sentence, count=1
    )


def _joined(request: str, sentences: Sequence[str], *, rng: Random, request_first: bool) -> str:
    """Combine a task and its instructions into one prompt, in one of several common layouts."""
    parts = list(sentences)
    if len(parts) > 1 and parts[0].endswith(".") and rng.random() < 0.25:
        a, b = parts[0].rstrip("."), parts[1]
        parts[:2] = [f"{a}{rng.choice((' and ', ', and ', '; '))}{_lower_first(b)}"]
    if len(parts) > 1 and rng.random() < 0.12:
        instructions = "\n".join(f"- {sentence}" for sentence in parts)
        return f"{request}\n{instructions}"
    instructions = " ".join(parts)
    if request_first:
        return f"{request}\n{instructions}"
    if rng.random() < 0.12:
        return f"{instructions} {request}"
    return request + rng.choice((" ", " ", " ", "\n", "\n\n", "")) + instructions


def _lower_first(sentence: str) -> str:
    return (
        sentence
        if sentence.startswith(("I ", "\ue000", "\ue001", '"', "'", "“"))
        else sentence[:1].lower() + sentence[1:]
    )


def _unmark(marked: str) -> tuple[str, list[int]]:
    """Return the prompt without its marks, and the start offset of each marked parameter, in order."""
    text, offsets, end = "", [], 0
    for match in _MARK.finditer(marked):
        text += marked[end : match.start()]
        offsets.append(len(text))
        text += match[1]
        end = match.end()
    return text + marked[end:], offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptWithChecks:
    """A prompt and its instructions, in the order of the prompt."""

    prompt: str
    request: str
    instructions: tuple[tuple[InstructionKind, Params], ...]
    checks: tuple[str, ...]
    """The Python expression that checks each instruction."""


def ask_instructions(
    *, kinds: Sequence[InstructionKind], rng: Random, vocabulary: Vocabulary, num_asked: int, held_out: bool
) -> PromptWithChecks:
    """Draw a prompt with `num_asked` instructions.

    Raises:
        ValueError: a program could not find its parameters in the prompt; the caller draws again.
    """
    sampled = rng.sample(kinds, num_asked)
    drawn = [(kind, kind.draw(rng, vocabulary)) for kind in sampled]
    request = draw_task(rng=rng, vocabulary=vocabulary)
    sentences = [_instruction_text(kind, params, rng=rng, held_out=held_out) for kind, params in drawn]
    request_first = any(kind.name == "repeat request" for kind in sampled)
    marked = _joined(request, sentences, rng=rng, request_first=request_first)
    prompt, offsets = _unmark(marked)
    places = Places.of(prompt)
    checks, taken = [], iter(offsets)
    for sentence, (kind, params) in zip(sentences, drawn, strict=True):
        marks = [match[0][0] for match in _MARK.finditer(sentence)]
        at = [(mark, next(taken)) for mark in marks]
        checks.append(
            places.resolve(
                kind.code,
                op=params.op,
                number_at=next((offset for mark, offset in at if mark == "\ue000"), None),
                quotes_at=[offset for mark, offset in at if mark == "\ue001"],
                quoted=not re.search("\\w \ue001", sentence),
            )
        )
    return PromptWithChecks(prompt=prompt, request=request, instructions=tuple(drawn), checks=tuple(checks))


def _respond(asked: PromptWithChecks, follow: Sequence[bool], *, rng: Random, vocabulary: Vocabulary) -> str | None:
    """Generate a response that follows exactly the instructions marked in `follow`; None after four failed attempts."""
    for _ in range(4):
        draft = Draft()
        try:
            for (kind, params), follows in zip(asked.instructions, follow, strict=True):
                kind.shape(draft, params, follows, rng, asked.request)
            text = write(draft, rng=rng, vocabulary=vocabulary)
        except Conflict:
            continue
        holds = [kind.holds(text, params, asked.request) for kind, params in asked.instructions]
        if holds == list(follow):
            return text
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericQuestion:
    """A question with one numeric answer."""

    question: str
    kind: NumericKind
    numbers: tuple[int, ...]
    """The numbers of the question, in its order."""


def ask_number(*, rng: Random, vocabulary: Vocabulary, held_out: bool) -> NumericQuestion:
    """Draw a question with one numeric answer."""
    kind = rng.choice(NUMERIC)
    numbers = kind.draw(rng)
    shown = {"name": rng.choice(vocabulary.names), "noun": rng.choice([w for w in vocabulary.nouns if w.isalpha()])}
    question = kind.questions.pick(rng=rng, held_out=held_out).format(*numbers, **shown)
    return NumericQuestion(question=question, kind=kind, numbers=numbers)


# Items ------------------------------------------------------------------------------------------------------------------


def draw_examples(mode: Mode, *, rng: Random, held_out: bool, mixture: Mixture) -> Iterator[SyntheticExample]:
    """Yield items forever. Held-out items have phrasings, words, topics and names that training never sees."""
    vocabulary = HELD_OUT if held_out else TRAINING
    tasks = None
    if mixture.evidence:
        tasks = draw_tasks(seed=rng.getrandbits(64), held_out=held_out, kinds=mixture.evidence_kinds)
    while True:
        kind = rng.random()
        tie = rng.random() < mixture.ties
        if kind < mixture.conduct:
            yield _conduct_example(mode, rng=rng, vocabulary=vocabulary, held_out=held_out, mixture=mixture)
            continue
        if 1 - kind < mixture.code:
            yield _code_example(mode, rng=rng, vocabulary=vocabulary, mixture=mixture)
            continue
        if tasks is not None and 1 - kind < mixture.code + mixture.evidence and mode is not Mode.LISTWISE:
            yield _evidence_example(next(tasks), mode, rng=rng)
            continue
        if 1 - kind < mixture.code + mixture.evidence + mixture.written:
            example = _written_example(mode, rng=rng, held_out=held_out, mixture=mixture, tie=tie)
        elif kind < mixture.conduct + mixture.numeric:
            example = _numeric_example(mode, rng=rng, vocabulary=vocabulary, held_out=held_out, mixture=mixture)
        else:
            example = _instruction_example(
                mode, rng=rng, vocabulary=vocabulary, held_out=held_out, mixture=mixture, tie=tie
            )
        if example is not None:
            yield _without_tools(example, rng=rng) if rng.random() < mixture.toolless else example


def _num_responses(mode: Mode, *, rng: Random, mixture: Mixture) -> int:
    if mode is not Mode.LISTWISE:
        return 1 if mode is Mode.POINTWISE else 2
    if mixture.list_size is not None:
        return mixture.list_size
    return rng.randint(9, 26) if rng.random() < mixture.long_lists else rng.choice((2, 3, 3, 4, 4, 4, 5, 6, 8))


def _instruction_example(
    mode: Mode, *, rng: Random, vocabulary: Vocabulary, held_out: bool, mixture: Mixture, tie: bool
) -> SyntheticExample | None:
    num_asked = rng.choice((2, 2, 3)) if rng.random() < mixture.many_instructions else 1
    try:
        asked = ask_instructions(
            kinds=mixture.drawn_kinds, rng=rng, vocabulary=vocabulary, num_asked=num_asked, held_out=held_out
        )
    except ValueError:
        return None
    patterns = _patterns(_num_responses(mode, rng=rng, mixture=mixture), num_asked=num_asked, rng=rng, tie=tie)
    responses = []
    for pattern in patterns:
        text = _respond(asked, pattern, rng=rng, vocabulary=vocabulary)
        if text is None:
            return None
        responses.append(text)
    met = [sum(pattern) / num_asked for pattern in patterns]
    best = rng.choice([i for i, share in enumerate(met) if share == max(met)])
    names = ", ".join(kind.name if p.number is None else f"{kind.name} {p.op}" for kind, p in asked.instructions)
    return SyntheticExample(
        mode=mode, prompt=asked.prompt, responses=tuple(responses), met=tuple(met), label=best, tools=True, verifiable=True,
        code=program(asked.checks, mode=mode), plan=f"To check: {names}.", num_asked=num_asked,
    )  # fmt: skip


def _written_example(
    mode: Mode, *, rng: Random, held_out: bool, mixture: Mixture, tie: bool
) -> SyntheticExample | None:
    composer = composer_of(HELD_OUT_WRITERS if held_out else TRAINING_WRITERS)
    asked = composer.draw(
        rng, num_sentences=rng.choice((1, 2, 2, 3)) if rng.random() < mixture.many_instructions else 1
    )
    num_asked = len(asked.checks)
    if not num_asked:
        return None
    responses, met = [], []
    for pattern in _patterns(_num_responses(mode, rng=rng, mixture=mixture), num_asked=num_asked, rng=rng, tie=tie):
        text = response_to(asked.checks, pattern, prompt=asked.text, sentences=composer.sentences, rng=rng)
        if text is None:
            return None
        responses.append(text)
        met.append(sum(pattern) / num_asked)
    best = rng.choice([i for i, share in enumerate(met) if share == max(met)])
    return SyntheticExample(
        mode=mode, prompt=asked.text, responses=tuple(responses), met=tuple(met), label=best, tools=True, verifiable=True,
        code=program_of_checks([check.expression for check in asked.checks], mode=mode),
        plan=f"To check: {', '.join(check.name for check in asked.checks)}.",
        num_asked=num_asked,
    )  # fmt: skip


def _patterns(num_responses: int, *, num_asked: int, rng: Random, tie: bool) -> list[list[bool]]:
    """Draw which instructions each response follows. One response is best, unless `tie`; the order is random."""

    def following(count: int) -> list[bool]:
        kept = set(rng.sample(range(num_asked), count))
        return [i in kept for i in range(num_asked)]

    if num_responses == 1:
        return [following(num_asked if rng.random() < 0.5 else rng.randint(0, num_asked - 1))]
    top = num_asked if rng.random() < 0.85 else rng.randint(1, num_asked)
    counts = [top, *(rng.randint(0, top - 1) for _ in range(num_responses - 1))]
    if tie:
        counts[1] = top
    rng.shuffle(counts)
    return [following(count) for count in counts]


def _numeric_example(
    mode: Mode, *, rng: Random, vocabulary: Vocabulary, held_out: bool, mixture: Mixture
) -> SyntheticExample | None:
    asked = ask_number(rng=rng, vocabulary=vocabulary, held_out=held_out)
    kind, numbers, question = asked.kind, asked.numbers, asked.question
    places = Places.of(question)
    offsets, start = [], 0
    for number in numbers:  # the question states its numbers in this order
        start = question.find(str(number), start)
        if start < 0 or start not in places.numbers:
            return None
        offsets.append(places.numbers.index(start))
        start += len(str(number))
    code = kind.code
    for i, place in enumerate(offsets):
        code = re.sub(rf"\bn{i}\b", f"n[{place}]", code)
    code = re.sub(r"\bN\b", f"n[{offsets[0]}:{offsets[-1] + 1}]", code)
    right = float(kind.answer(numbers))
    num_responses = _num_responses(mode, rng=rng, mixture=mixture)
    best = rng.randrange(num_responses)
    good = [i == best for i in range(num_responses)] if num_responses > 1 else [rng.random() < 0.5]
    values = [right if is_right else wrong_answer(right, rng=rng) for is_right in good]
    check = f"last(r) == {code}"
    return SyntheticExample(
        mode=mode, prompt=question, responses=tuple(explained(value, rng=rng, vocabulary=vocabulary) for value in values),
        met=tuple(map(float, good)), label=best, tools=True, verifiable=True, code=program([check], mode=mode),
        plan=f"To check: {kind.name}.", num_asked=1,
    )  # fmt: skip


def _code_example(mode: Mode, *, rng: Random, vocabulary: Vocabulary, mixture: Mixture) -> SyntheticExample:
    asked = ask_code(rng=rng, vocabulary=vocabulary)
    num_responses = _num_responses(mode, rng=rng, mixture=mixture)
    best = rng.randrange(num_responses)
    good = [i == best for i in range(num_responses)] if num_responses > 1 else [rng.random() < 0.5]
    return SyntheticExample(
        mode=mode, prompt=asked.prompt, responses=tuple(implementation(asked, is_right=right, rng=rng) for right in good),
        met=tuple(map(float, good)), label=best, tools=True, verifiable=True, code=program([CHECK], mode=mode),
        plan="To check: code.", num_asked=1,
    )  # fmt: skip


WITHOUT_EVIDENCE = 0.1
"""Share of the tasks of evidence that are shown without evidence and functions. Their verdict is random."""


def _evidence_example(task: EvidenceTask, mode: Mode, *, rng: Random) -> SyntheticExample:
    """Return a task of evidence. The program of a task is exact, so its output is known."""
    is_pointwise = mode is Mode.POINTWISE
    shown = rng.randrange(2)
    is_right = shown == task.label
    example = SyntheticExample(
        mode=mode, prompt=task.question, responses=(task.responses[shown],) if is_pointwise else task.responses,
        met=(float(is_right),) if is_pointwise else tuple(float(i == task.label) for i in range(2)),
        label=0 if is_pointwise else task.label, tools=True, verifiable=True, num_asked=1, evidence=task.stores,
        code=task.program(is_pointwise=is_pointwise), output=task.output(is_right=is_right if is_pointwise else None),
        plan=f"To check: {task.plan}.",
    )  # fmt: skip
    if rng.random() >= WITHOUT_EVIDENCE:
        return example
    guess = rng.randrange(2)
    met = (float(guess),) if is_pointwise else example.met
    return replace(
        example, code=None, output=None, evidence=(), presents_functions=False, met=met,
        label=0 if is_pointwise else guess, plan="No evidence.",
    )  # fmt: skip


def _conduct_example(
    mode: Mode, *, rng: Random, vocabulary: Vocabulary, held_out: bool, mixture: Mixture
) -> SyntheticExample:
    num_responses = _num_responses(mode, rng=rng, mixture=mixture)
    case = draw_conduct(rng=rng, vocabulary=vocabulary, num_bad=max(1, num_responses - 1), held_out=held_out)
    if num_responses == 1:
        good = rng.random() < 0.5
        responses, met, label = [case.good if good else case.bad[0]], [float(good)], 0
    else:
        label = rng.randrange(num_responses)
        responses = list(case.bad[: num_responses - 1])
        responses.insert(label, case.good)
        met = [float(i == label) for i in range(num_responses)]
    return SyntheticExample(
        mode=mode, prompt=case.prompt, responses=tuple(responses), met=tuple(met), label=label, tools=rng.random() < 0.5,
        verifiable=False, code=None, plan=case.why, num_asked=0,
    )  # fmt: skip


def _without_tools(example: SyntheticExample, *, rng: Random) -> SyntheticExample:
    """Return the same item for the prompt without tools. Its verdict is random, because the model can only guess."""
    met = (rng.random(),) if example.mode is Mode.POINTWISE else example.met
    label = rng.randrange(len(example.responses))
    return replace(example, tools=False, code=None, met=met, label=label, plan="This needs a program.")


def segments(example: SyntheticExample) -> list[Segment]:
    """Return the judgment to learn, with the actual output of its program."""
    verdict = _verdict(example)
    if example.code is None:
        return [Segment(text=f"{example.plan}\n{verdict}", by_model=True)]
    bound = bindings(example.mode, prompt=example.prompt, responses=example.responses)
    right = {response for response, met in zip(example.responses, example.met, strict=True) if met == 1}

    def tests(code: str, cases: object) -> SimpleNamespace:
        return SimpleNamespace(all_passed=code in right)

    stdout = example.output
    if stdout is None:
        stdout = run_trusted(example.code, bindings={**bound, "tests": tests})
    printed = ExecResult(outcome=Outcome.OK, stdout=stdout)
    output = FORMAT.shown_output(printed, limit=8192)
    return [
        Segment(text=f"{example.plan}\n```python\n{example.code}```\n{OUTPUT_FENCE}", by_model=True),
        Segment(text=observation_text(output), by_model=False),
        Segment(text=verdict, by_model=True),
    ]


def _verdict(example: SyntheticExample) -> str:
    if example.mode is Mode.POINTWISE:
        return f"<score>{1 + int(SCORE_SPAN * example.met[0] + 1e-9)}</score>"
    return f"<preference>{label_of(example.label)}</preference>"
