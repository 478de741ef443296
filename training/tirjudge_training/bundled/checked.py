"""Training examples of the second generation: the judge reads a prompt and writes its checks.

The prompt alone determines the checks, so no example has responses: the outcomes of the checks are drawn, and the prompt
shows nothing of the responses. If nothing can be checked, or if checks tie and no response is nearest,
the verdict is drawn evenly.

Texts that are always the same, such as the instructions of the prompt and the functions of a program, are one token each
(`frozen_texts`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from tirjudge.chat_template import ChatTemplate
from tirjudge.control_tokens import NONE
from tirjudge.formats.blocks import OUTPUT_FENCE, labels, observation_text
from tirjudge.formats.texts import NOT_SHOWN
from tirjudge.formats.tirjudge_2 import FORMAT
from tirjudge.profile import Profile
from tirjudge.types import MODEL_MODES, Mode, label_of
from tirjudge_training.bundled.problems import draw_problem
from tirjudge_training.instructions.composing import Composer, composer_of
from tirjudge_training.instructions.helpers import SOURCES, TOOL_SOURCES
from tirjudge_training.instructions.notation import FORMS, LENGTHS, NAMES, SYMBOLS, TEXTS, Check
from tirjudge_training.instructions.passages import draw_passage, draw_question
from tirjudge_training.instructions.programs import COMPARE, END_OF_CHECKS, SCORE, START, program
from tirjudge_training.instructions.regex_requests import draw_regex_request
from tirjudge_training.instructions.tool_prompts import EXAMPLES, draw_code, draw_lookup, draw_question_of_task
from tirjudge_training.instructions.word_problems import draw_calculation, draw_word_problem
from tirjudge_training.instructions.written import TRAINING_WRITERS
from tirjudge_training.synthetic.conduct import draw_conduct, draw_task
from tirjudge_training.synthetic.examples import Segment, ask_instructions, ask_number
from tirjudge_training.synthetic.instructions import KINDS, Params
from tirjudge_training.synthetic.teacher_errors import TeacherErrors
from tirjudge_training.synthetic.vocabulary import HELD_OUT, TRAINING

NO_CHECK = "Nothing in the prompt can be checked with a program.\n"
"""Text before the verdict if the judge writes no program."""

NO_TOOLS = "Nothing can be checked without a program.\n"
"""Text before the verdict of a prompt without tools."""

CLOSE = "```\n" + OUTPUT_FENCE
"""Text after a program."""

OPEN = "```python\n" + START
"""Text before the checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedShares:
    """Shares of the kinds of examples. The remainder is composed of written sentences."""

    nothing: float = 0.17
    """Share without a check. A third of them are long."""
    problems: float = 0.35
    """Share of those without a check that are problems of mathematics, contests, puzzles and exams. Contests with samples
    have a check."""
    templates: float = 0.03
    """Share with instructions of the first generation's templates."""
    numeric: float = 0.01
    """Share of the first generation's questions with one numeric answer."""
    calculations: float = 0.14
    """Share of everyday calculations."""
    word_problems: float = 0.06
    """Share of word problems of several steps. They have no check: a judge of this size does not solve them."""
    lookups: float = 0.08
    """Share of questions that stores answer. A fifth of them are about generated worlds."""
    code: float = 0.06
    """Share of requests for code, most of them with examples."""
    regexes: float = 0.07
    """Share of requests for a regular expression, most of them with examples."""
    toolless: float = 0.02
    """Share without tools."""
    passage: float = 0.06
    """Share of the composed prompts with a long text between the instructions and the task."""
    tie: float = 0.5
    """Share of the examples with several responses of which at least two pass the most checks."""
    nearest: float = 0.8
    """Share of these in which one of them is nearer to what the comparisons of counts ask for."""
    nearest_is_best: float = 0.75
    """How often the verdict then prefers the nearest one. A smaller miss is weaker evidence than a check that passes."""
    noise: float = 0.04
    """Share of the complete judgments whose program fails or prints noise."""
    failing: float = 0.2
    """Share of the complete judgments with look-ups, code or a calculation whose program fails."""


FAILURES = (
    "NameError: name 'stores' is not defined",
    "NameError: name 'tests' is not defined",
    "NameError: name 'is_a' is not defined",
    "ValueError: the prompt has no example",
    "ValueError: the prompt does not ask for Python",
    "LookupError: no store tells the price of anything",
    "LookupError: no graph has the class Invoice",
    "ValueError: the prompt has other numbers than the calculation",
    "ValueError: an example of the prompt is misread",
)
"""Output of programs that could not use a tool, or whose values are not those of the prompt."""
_MAY_FAIL = ("answer(", "matches(", "no_match(", *(f"{name}(" for name in TOOL_SOURCES))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedExample:
    """One example: a prompt, its checks, and the drawn outcome."""

    mode: Mode
    prompt: str
    checks: tuple[str, ...]
    """Expressions over the response `r`, in the order of the prompt. Empty: nothing can be checked."""
    tools: bool
    num_responses: int
    outcomes: tuple[tuple[bool, ...], ...]
    """For each response, which checks it passes."""
    nearness: tuple[float, ...]
    """For each of several responses, how nearly its failed comparisons hold, from 0 to less than 1."""
    label: str
    """Label of the verdict."""
    noise: str | None = None
    """Output of the program, if it is not what the checks give."""


def drawn_example(rng: Random, *, mode: Mode, shares: CheckedShares) -> CheckedExample:
    """Draw one training example."""
    prompt, checks = _prompt(rng, shares=shares)
    num_responses = 1 if mode is Mode.POINTWISE else 2 if mode is Mode.PAIRWISE else _list_size(rng)
    tools = rng.random() >= shares.toolless
    if not tools:
        checks = ()
    tie = rng.random() < shares.tie
    outcomes = _outcomes(len(checks), num_responses=num_responses, tie=tie, rng=rng)
    nearness = _nearness(checks, outcomes, differs=not tie or rng.random() < shares.nearest, rng=rng)
    may_fail = any(check.startswith(_MAY_FAIL) for check in checks)
    noise = None
    if may_fail and rng.random() < shares.failing:
        noise = rng.choice(FAILURES)
    elif checks and rng.random() < shares.noise:
        noise = _noise(rng)
    names = labels(mode, num_responses)
    if not checks or noise is not None:
        label = rng.choice(names)
    elif mode is Mode.POINTWISE:
        label = str(_score(outcomes[0]))
    else:
        passed = list(map(sum, outcomes))
        best = [name for name, num in zip(names, passed, strict=True) if num == max(passed)]
        nearest = _nearest(passed, nearness)
        if nearest is not None:
            others = [name for name in best if name != names[nearest]]
            best = [names[nearest]] if rng.random() < shares.nearest_is_best else others
        label = rng.choice(best)
    return CheckedExample(
        mode=mode,
        prompt=prompt,
        checks=checks,
        tools=tools,
        num_responses=num_responses,
        outcomes=outcomes,
        nearness=nearness,
        label=label,
        noise=noise,
    )


def with_errors(
    example: CheckedExample, *, erring: TeacherErrors, shares: CheckedShares, rng: Random
) -> CheckedExample:
    """Return the example with the answer of a weak teacher: the correct one or, at the error rates, a guess or the checks of
    another prompt."""
    draw = rng.random()
    if not example.checks or draw >= erring.guesses + erring.wrong_plans:
        return example
    if draw < erring.guesses:
        return replace(example, checks=(), noise=None, label=rng.choice(labels(example.mode, example.num_responses)))
    while True:
        other = drawn_example(rng, mode=example.mode, shares=shares)
        if other.checks:
            return replace(other, prompt=example.prompt)


def rendered(example: CheckedExample, *, profile: Profile, chat: ChatTemplate, max_tool_calls: int = 3) -> str:
    """Return the prompt as the serving loop renders it, up to the start of the answer."""
    text = FORMAT.render_prompt(
        example.mode,
        prompt=example.prompt,
        responses=[""] * example.num_responses,
        tools=example.tools,
        max_tool_calls=max_tool_calls,
        prompt_chars=profile.prompt_chars,
        response_chars=profile.response_chars,
        control_tokens=NONE,
    )
    return chat.render_prompt(text)


def empty_examples() -> tuple[CheckedExample, CheckedExample]:
    """Return examples with an empty prompt and tools, of a single response and of a pair."""
    single = CheckedExample(
        mode=Mode.POINTWISE, prompt="", checks=(), tools=True, num_responses=1, outcomes=(), nearness=(), label=""
    )
    return single, replace(single, mode=Mode.PAIRWISE, num_responses=2)


def judgment(example: CheckedExample, *, whole: bool) -> list[Segment]:
    """Return the judgment to learn.

    Args:
        example: the example.
        whole: whether to return the complete judgment. False: only up to the end of the checks.
    """
    tag = "score" if example.mode is Mode.POINTWISE else "preference"
    verdict = f"<{tag}>{example.label}</{tag}>"
    if not example.checks:
        return [Segment(text=f"{NO_CHECK if example.tools else NO_TOOLS}{verdict}", by_model=True)]
    code = program(example.checks, mode=example.mode)
    if not whole:
        code = code[: code.index(END_OF_CHECKS) + len(END_OF_CHECKS) + 1]
        return [Segment(text=f"```python\n{code}", by_model=True)]
    return [
        Segment(text=f"```python\n{code}{CLOSE}", by_model=True),
        Segment(text=observation_text(example.noise or _output(example)), by_model=False),
        Segment(text=verdict, by_model=True),
    ]


def _output(example: CheckedExample) -> str:
    rows = [" ".join(str(int(passed)) for passed in each) for each in example.outcomes]
    if example.mode is Mode.POINTWISE:
        return f"{rows[0]}\nCHECK {json.dumps({'score': _score(example.outcomes[0])})}"
    names = [label_of(i) for i in range(len(rows))]
    passed = list(map(sum, example.outcomes))
    lines = [f"{name} {row}" for name, row in zip(names, rows, strict=True)]
    nearest = _nearest(passed, example.nearness)
    if nearest is not None:
        lines.append(f"nearest: {names[nearest]}")
    return "\n".join([*lines, f"CHECK {json.dumps(dict(zip(names, passed, strict=True)))}"])


def _nearest(passed: Sequence[int], nearness: Sequence[float]) -> int | None:
    """Return the place of the response that is nearest among several that pass the most checks; None: there is none."""
    near = {place: nearness[place] for place, num in enumerate(passed) if num == max(passed)}
    nearest = [place for place, each in near.items() if each == max(near.values())]
    return nearest[0] if len(nearest) == 1 < len(near) else None


def _score(passed: Sequence[bool]) -> int:
    return 1 + 9 * sum(passed) // len(passed)


def _list_size(rng: Random) -> int:
    return rng.randint(9, 26) if rng.random() < 0.05 else rng.choice((2, 3, 3, 4, 4, 4, 5, 6, 8))


def _outcomes(num_checks: int, *, num_responses: int, tie: bool, rng: Random) -> tuple[tuple[bool, ...], ...]:
    """Draw which checks each response passes. One response is best, unless `tie`."""

    def passing(count: int) -> tuple[bool, ...]:
        kept = set(rng.sample(range(num_checks), count))
        return tuple(i in kept for i in range(num_checks))

    if not num_checks:
        return ((),) * num_responses
    if num_responses == 1:
        return (passing(num_checks if rng.random() < 0.5 else rng.randint(0, num_checks - 1)),)
    top = num_checks if rng.random() < 0.7 else rng.randint(1, num_checks)
    counts = [top, *(rng.randint(0, top - 1) for _ in range(num_responses - 1))]
    if tie:
        counts[1] = top = counts[0] = rng.randint(0, top)
        counts = [min(count, top) for count in counts]
    rng.shuffle(counts)
    return tuple(map(passing, counts))


_COMPARED = re.compile(r"^(?!all\().* (?:[<>]=?|==) ")
"""A comparison of one count."""


def _nearness(
    checks: Sequence[str], outcomes: Sequence[Sequence[bool]], *, differs: bool, rng: Random
) -> tuple[float, ...]:
    """Draw how nearly the failed comparisons of each response hold; 0 if it fails none.

    Args:
        checks: the checks.
        outcomes: which checks each response passes.
        differs: whether responses that pass equally many checks may differ.
        rng: source of randomness.
    """
    is_compared = [_COMPARED.search(check) is not None for check in checks]
    drawn: dict[tuple[int, int], float] = {}
    nearness = []
    for passed in outcomes:
        missed = sum(compared and not ok for compared, ok in zip(is_compared, passed, strict=True))
        near = round(rng.uniform(0.02, 0.99) * missed / max(1, len(passed) - sum(passed)), 2)
        nearness.append(near if differs else drawn.setdefault((sum(passed), missed), near))
    return tuple(nearness)


def _noise(rng: Random) -> str:
    if rng.random() < 0.4:
        return rng.choice(
            ("NameError: name 'x' is not defined", "IndexError: list index out of range", "[output cut]", "")
        )
    characters = "ABCDEFGHJKMNPQRSTUVWXYZ0123456789 \n"
    return "".join(rng.choice(characters) for _ in range(rng.randint(8, 40)))


# Prompts ----------------------------------------------------------------------------------------------------------------


def _prompt(rng: Random, *, shares: CheckedShares) -> tuple[str, tuple[str, ...]]:
    composer = composer_of(TRAINING_WRITERS)
    kind = rng.random()
    if kind < shares.nothing:
        if rng.random() < shares.problems:
            problem = draw_problem(rng)
            return problem.text, (EXAMPLES,) if problem.shows_samples else ()
        return _prompt_without_check(composer, rng=rng), ()
    kind -= shares.nothing
    if kind < shares.templates:
        return template_prompt(rng, held_out=False)
    kind -= shares.templates
    if kind < shares.numeric:
        return numeric_prompt(rng, held_out=False)
    kind -= shares.numeric
    if kind < shares.calculations:
        return draw_calculation(rng)
    kind -= shares.calculations
    if kind < shares.word_problems:
        return draw_word_problem(rng), ()
    kind -= shares.word_problems
    if kind < shares.lookups:
        return draw_question_of_task(rng) if rng.random() < 0.2 else draw_lookup(rng, composer)
    kind -= shares.lookups
    if kind < shares.code:
        return draw_code(rng, composer)
    kind -= shares.code
    if kind < shares.regexes:
        return draw_regex_request(rng, composer)
    asked = composer.draw(rng, num_sentences=rng.choices((1, 2, 3, 4, 5), (30, 30, 22, 12, 6))[0])
    text = asked.text
    if rng.random() < shares.passage:
        passage = draw_passage(rng)
        text = rng.choice((f"{text}\n\n{passage}", f"{passage}\n\n{text}", f'{text}\n"""\n{passage}\n"""'))
    return text, tuple(check.expression for check in asked.checks)


def _prompt_without_check(composer: Composer, *, rng: Random) -> str:
    kind = rng.random()
    if kind < 0.3:
        return composer.draw_without_checks(rng)
    if kind < 0.45:
        return draw_conduct(rng=rng, vocabulary=TRAINING, num_bad=1, held_out=False).prompt
    if kind < 0.55:
        return draw_task(rng=rng, vocabulary=TRAINING)
    if kind < 0.8:
        return draw_question(rng, composer)
    passage, task = draw_passage(rng), composer.draw_without_checks(rng)
    return rng.choice((passage, f"{task}\n\n{passage}", f"{passage}\n\n{task}", f"{task}\n```\n{passage}\n```"))


_CHECK_OF: Mapping[str, Callable[[Params], Check]] = {
    **{
        kind: lambda params, name=name: Check(name=name, numbers=(str(params.number),), op=params.op)
        for kind, name in {
            "words": "words",
            "sentences": "sentences",
            "paragraphs": "paragraphs",
            "bullets": "bullets",
            "numbered items": "numbered",
            "lines": "lines",
            "characters": "characters",
            "question marks": "questions",
            "exclamation marks": "exclamations",
            "placeholders": "placeholders",
            "highlights": "highlights",
            "hashtags": "hashtags",
            "capital words": "capitals",
            "parentheses": "parentheses",
            "numbers": "numbers",
            "short sentences": "sentence_words",
        }.items()
    },
    **{
        kind: lambda params, name=name: Check(
            name=name, texts=params.quotes, numbers=(str(params.number),), op=params.op
        )
        for kind, name in {"word frequency": "count", "letter frequency": "letter", "sections": "sections"}.items()
    },
    **{
        kind: lambda params, name=name: Check(name=name, texts=params.quotes)
        for kind, name in {
            "keywords": "include",
            "forbidden words": "forbid",
            "start": "start",
            "end": "end",
            "postscript": "postscript",
            "choose one": "options",
            "line start": "line_start",
        }.items()
    },
    **{
        kind: lambda params, name=name: Check(name=name)
        for kind, name in {
            "all capitals": "upper",
            "all lowercase": "lower",
            "quotation": "quoted",
            "json": "json",
            "title": "title",
            "repeat request": "repeat",
            "two answers": "two_answers",
            "no digits": "no_digits",
            "ends as question": "ends_question",
        }.items()
    },
    "no commas": lambda params: Check(name="commas", numbers=("0",), op="=="),
}
"""Name of a kind of instruction of the first generation -> its check."""


def template_prompt(rng: Random, *, held_out: bool) -> tuple[str, tuple[str, ...]]:
    """Draw a prompt of the first generation's templates, and its checks."""
    vocabulary = HELD_OUT if held_out else TRAINING
    while True:
        try:
            asked = ask_instructions(
                kinds=KINDS, rng=rng, vocabulary=vocabulary, num_asked=rng.choice((1, 1, 2, 3)), held_out=held_out
            )
        except ValueError:
            continue
        checks = [_CHECK_OF[kind.name](params) for kind, params in asked.instructions]
        return asked.prompt, tuple(check.expression for check in checks)


def numeric_prompt(rng: Random, *, held_out: bool) -> tuple[str, tuple[str, ...]]:
    """Draw a question with one numeric answer, and its check."""
    asked = ask_number(rng=rng, vocabulary=HELD_OUT if held_out else TRAINING, held_out=held_out)
    formula = re.sub(r"\bN\b", str(list(asked.numbers)), asked.kind.code)
    formula = re.sub(r"\bn(\d)\b", lambda match: str(asked.numbers[int(match[1])]), formula)
    return asked.question, (f'answer(r, "{formula}")',)


# Tokens -----------------------------------------------------------------------------------------------------------------

_PLACE = re.compile(r"\{\w+\}")


def known_checks(tokens: Collection[str]) -> tuple[str, ...]:
    """Return the names of the checks that a judge with these tokens can write.

    Their parts of expressions are one token each. Checks that were added after its training are not among them.
    """
    return tuple(name for name in NAMES if _part_of(name) in tokens)


def _part_of(name: str) -> str:
    """Return the text of `frozen_texts` by which a program has a check."""
    if name in FORMS:
        return f"        {FORMS[name]},\n"
    if name in SYMBOLS:
        return f'        count(r, "{SYMBOLS[name]}")'
    if name in LENGTHS:
        return f" for x in {LENGTHS[name]}(r)),\n"
    function = TEXTS.get(name, "count" if name == "symbol" else name)
    return f"        {function.removeprefix('not ')}(r"


@cache
def frozen_texts() -> tuple[str, ...]:
    """Return the texts that are one token each, the longest first: the pieces of prompts and of chat turns, the functions of
    programs, the parts of expressions."""
    texts = [NO_CHECK, NO_TOOLS, OPEN, CLOSE, COMPARE, SCORE, f"{END_OF_CHECKS}\n"]
    for mode in MODEL_MODES:
        for tools in (True, False):
            texts += (piece for piece in _PLACE.split(FORMAT.template(mode, tools=tools)) if len(piece.strip()) > 3)
    texts += ["user\n", "\n<|im_start|>", "assistant\n", "<prompt>\n", "\n</prompt>\n\n", " [... ", " characters ...] "]
    for name in ("response", *(f"response_{label_of(i).lower()}" for i in range(26))):
        texts += [f"<{name}>", f"</{name}>", f"<{name}>\n{NOT_SHOWN}\n</{name}>"]
    texts.append("\n\n".join(f"<response_{name}>\n{NOT_SHOWN}\n</response_{name}>" for name in "ab"))
    texts += ["<preference>", "</preference>", "<score>", "</score>", 'CHECK {"A": ', 'CHECK {"score": ']
    texts += (f"{source}\n" for source in SOURCES.values())
    texts += (f"        {expression},\n" for expression in (*FORMS.values(), EXAMPLES))
    texts += (f'        count(r, "{symbol}")' for symbol in SYMBOLS.values())
    for name in SOURCES:
        texts += [f"        {name}(r"] if name in TOOL_SOURCES else [f"        {name}(r", f" <= {name}(r)"]
    texts += (f" for x in {name}(r)),\n" for name in LENGTHS.values())
    texts += ["        all(x", "        all(", ",\n", "),\n", '"),\n']
    texts += (f"{end} {op} " for op in (">=", "<=", "==", ">", "<") for end in ("", ")", '")'))
    return tuple(sorted(set(texts), key=lambda text: (-len(text), text)))
