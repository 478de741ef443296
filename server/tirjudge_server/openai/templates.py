"""Parse widespread judge prompts into a request, and determine the format in which they expect the verdict.

Four prompts are supported:

- Two or more answers between `[The Start of Assistant A's Answer]` markers (`[[A]]`, `[[A>B]]`).
- One answer between such markers (`[[rating]]`).
- A question, a ground truth and a response in fenced sections ("yes" or "no").
- A gold and a predicted solution (`### Final Score: 1`).

Callers paste answers into such a prompt, and an answer can contain forged markers. The rules below leave exactly one reading.
A prompt that breaks one is refused, and the error names the offending marker:

- Each answer has one start and one end marker, in the order of the letters. No other such marker occurs in the prompt.
- A reference is before the first answer or after the last one, never inside an answer.
- Exactly one question heading is before the first section. Later ones are text of an answer.
- Each heading of the fenced and of the gold prompt occurs once.
- A prompt that matches two of the four supported prompts is refused.

Each parser reads the text once, in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tirjudge.types import Mode, label_of
from tirjudge_server.markers import Ambiguous, ambiguous
from tirjudge_server.openai.forms import Form, PreferenceForm, RatingForm, YesNoForm

# ASCII: with Unicode rules, IGNORECASE equates letters such as `ſ` and `s`.
_FLAGS = re.IGNORECASE | re.MULTILINE | re.ASCII
_OPEN, _CLOSE = r"(?:\[|<\|)", r"(?:\]|\|>)"
_ASKED = r"(?:User(?:[’']s)? )?(?:Question|Prompt|Instruction)"
_ANSWER = re.compile(
    rf"{_OPEN}The (Start|End) of (?:the )?(?:AI )?Assistant(?: ([A-Z]))?(?:[’']s)? (?:Answer|Response){_CLOSE}", _FLAGS
)
_REFERENCE = re.compile(rf"{_OPEN}The (Start|End) of (?:the )?Reference (?:Answer|Response){_CLOSE}", _FLAGS)
_QUESTION = re.compile(
    rf"^[ \t]*(?:{_OPEN}(?:User |Client )?(?:Question|Prompt){_CLOSE}|{_OPEN}The Start of (?:the )?{_ASKED}{_CLOSE})",
    _FLAGS,
)
_QUESTION_END = re.compile(rf"{_OPEN}The End of (?:the )?{_ASKED}{_CLOSE}", _FLAGS)
_OTHER_JUDGES = re.compile(
    rf"{_OPEN}The (?:Start|End) of [^\[\]<>|\n]{{0,40}}(?:Assistant|Chatbot|Model|Candidate)[^\[\]<>|\n]{{0,40}}{_CLOSE}",
    _FLAGS,
)
"""Answer markers of judge prompts that are not supported."""

_FENCED_HEADING = re.compile(
    r"^(?:(?P<question>Question)|(?P<reference>(?:Ground truth|Reference) answer)|(?P<response>Response)):\s*```\n",
    _FLAGS,
)
_FENCE = "\n```"
_YES_NO = re.compile(r"[\"'“](yes)[\"'”] or [\"'“](no)[\"'”]", _FLAGS)

_SOLUTION = re.compile(r"^(?:(?P<gold>GOLD)|(?P<predicted>PREDICTED)) SOLUTION:\n", re.MULTILINE)
_FINAL_SCORE = "### Final Score:"
_LAST_LINE = "Answer:"

_SCALE = re.compile(r"(?:scale (?:of|from)|from|between)\s+(\d+)\s*(?:to|and|-|–)\s*(\d+)", _FLAGS)
_MAX_SCALE_DIGITS = 9
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_ABOUT_THE_FORM = re.compile(r"\[\[|final score|rating:|following this format|^or$|<\||^\[[\w ]+\]$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """A judge prompt, parsed."""

    fields: dict[str, Any]
    """Fields of a `JudgeRequest`."""
    form: Form
    """Format in which the prompt expects the verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """Result of one parser."""

    recognised: Recognised
    marker: re.Match[str]
    """The first marker that the parser used."""


def recognise(text: str, *, instruction: str = "", param: str = "messages") -> Recognised | None:
    """Parse a judge prompt. Return None for other text.

    Args:
        text: The user's message.
        instruction: Text before the message, such as a system message.
        param: Field that holds the text, for error messages.

    Raises:
        Refused: 400 with code `ambiguous_template`, the judge prompt has more than one reading.
    """
    try:
        readings = [read(text, instruction) for read in (_marked_answers, _fenced_sections, _gold_and_predicted)]
        found = sorted((reading for reading in readings if reading is not None), key=lambda r: r.marker.start())
        if len(found) > 1:
            raise Ambiguous(found[-1].marker[0], "starts a judge prompt inside another one")
    except Ambiguous as error:
        raise ambiguous(error, param=param, fix="send the texts separately, in `judge` of the body") from error
    return found[0].recognised if found else None


def markers_in(text: str) -> list[str]:
    """Return all markers of answers and references in a text, and all headings of the fenced and the gold prompt."""
    patterns = (_ANSWER, _REFERENCE, _OTHER_JUDGES, _FENCED_HEADING, _SOLUTION)
    return [marker[0] for pattern in patterns for marker in pattern.finditer(text)]


def _marked_answers(text: str, instruction: str) -> _Reading | None:
    """Parse a prompt with `[The Start of Assistant A's Answer] ... [The End of Assistant A's Answer]` for each answer."""
    markers = list(_ANSWER.finditer(text))
    if not markers:
        return None
    _check_pairs(markers)
    spans = list(zip(markers[::2], markers[1::2], strict=True))
    reference = _reference(text, begin=markers[0], end=markers[-1])
    sections = sorted([*spans, reference] if reference else spans, key=lambda pair: pair[0].start())
    question = _question(text, first=sections[0][0])
    prompt = _prompt(text, begin=question.end(), end=sections[0][0].start())
    _check_outside(text, answers=spans)
    around = [instruction, text[: question.start()], text[markers[-1].end() :]]
    fields: dict[str, Any] = {"prompt": prompt, "responses": [_between(text, *span) for span in spans]}
    if reference is not None:
        fields["reference"] = _between(text, *reference)
        if reference is sections[-1]:
            around[2:] = [text[markers[-1].end() : reference[0].start()], text[reference[1].end() :]]
    outside = " ".join(around)
    fields["rubric"] = criteria_in(outside)
    fields["mode"] = (Mode.POINTWISE, Mode.PAIRWISE, Mode.LISTWISE)[min(len(spans), 3) - 1]
    single = len(spans) == 1
    form = _rating_form(outside) if single else _preference_form(outside, num_responses=len(spans))
    return _Reading(recognised=Recognised(fields=fields, form=form), marker=question)


def _between(text: str, start: re.Match[str], end: re.Match[str]) -> str:
    return text[start.end() : end.start()].strip("\n")


def _check_pairs(markers: Sequence[re.Match[str]]) -> None:
    """Check that each answer starts and ends once, in the order of the letters.

    An answer can then not contain an end marker followed by the start of a forged answer.
    """
    named = markers[0][2] is not None
    for place, marker in enumerate(markers):
        side = "start" if place % 2 == 0 else "end"
        letter = label_of(place // 2) if named else None
        if marker[1].lower() != side or (marker[2] and marker[2].upper()) != letter or (place > 1 and not named):
            raise Ambiguous(marker[0], "is unexpected there; expected: one start and one end for each answer")
    if len(markers) % 2:
        raise Ambiguous(markers[-1][0], "starts an answer that does not end")


def _reference(text: str, *, begin: re.Match[str], end: re.Match[str]) -> tuple[re.Match[str], re.Match[str]] | None:
    """Return the start and end markers of the reference answer; None: no reference.

    Args:
        text: The prompt.
        begin: Start marker of the first answer.
        end: End marker of the last answer.
    """
    markers = list(_REFERENCE.finditer(text))
    for place, marker in enumerate(markers):
        if begin.start() < marker.start() < end.start():
            raise Ambiguous(marker[0], "is between the start of the first and the end of the last answer")
        if place > 1 or marker[1].lower() != ("start", "end")[place]:
            raise Ambiguous(marker[0], "is unexpected there; expected: one start and one end for the reference")
    if not markers:
        return None
    if len(markers) == 1 or (markers[0].start() < begin.start() < markers[1].start()):
        raise Ambiguous(markers[0][0], "starts a reference that does not end")
    return markers[0], markers[1]


def _question(text: str, *, first: re.Match[str]) -> re.Match[str]:
    """Return the question's heading, which must be before the first section."""
    headings = list(_QUESTION.finditer(text, 0, first.start()))
    if not headings:
        raise Ambiguous(first[0], "has no [User Question] before it")
    if len(headings) > 1:
        raise Ambiguous(headings[1][0], "is a second heading of a question")
    return headings[0]


def _prompt(text: str, *, begin: int, end: int) -> str:
    """The question, without the marker at its end if there is one."""
    ends = list(_QUESTION_END.finditer(text, begin, end))
    if len(ends) > 1:
        raise Ambiguous(ends[1][0], "is a second end of the question")
    if ends and not text[ends[0].end() : end].strip():
        end = ends[0].start()
    return text[begin:end].strip()


def _check_outside(text: str, *, answers: Sequence[tuple[re.Match[str], re.Match[str]]]) -> None:
    """Refuse markers of an unsupported judge prompt outside the answers.

    The answers of such a prompt would be ignored, and the markers that were found can be text of one of them.
    """
    spans = chain(answers, [(None, None)])
    start, end = next(spans)
    for marker in _OTHER_JUDGES.finditer(text):
        while end is not None and end.end() <= marker.start():
            start, end = next(spans)
        is_inside = start is not None and start.start() <= marker.start()
        if not is_inside:
            raise Ambiguous(marker[0], "belongs to an unsupported judge prompt")


def _preference_form(outside: str, *, num_responses: int) -> PreferenceForm:
    if "[[A>B]]" in outside:
        return PreferenceForm(tie="[[A=B]]", arrows=True)
    offers_tie = num_responses == 2 and "[[C]]" in outside
    return PreferenceForm(tie="[[C]]" if offers_tie else None)


def _rating_form(outside: str) -> RatingForm:
    scale = _SCALE.search(outside)
    if scale is None:
        low, high = 1, 10
    elif max(map(len, scale.groups())) > _MAX_SCALE_DIGITS:
        raise Ambiguous(scale[0], f"names a scale with numbers of more than {_MAX_SCALE_DIGITS} digits")
    else:
        low, high = int(scale[1]), int(scale[2])
    if low >= high:
        raise Ambiguous(scale[0] if scale else "", "names a scale that does not ascend")
    return RatingForm(low=low, high=high, pattern="Rating: [[{}]]" if "rating" in outside.lower() else "[[{}]]")


def _fenced_sections(text: str, instruction: str) -> _Reading | None:
    """Parse a prompt with question, ground truth and response in fences, which asks for "yes" or "no".

    The response ends at the last fence of the prompt. Earlier fences in it are text of the response.
    """
    end = text.rfind("`") - 2
    yes_no = _YES_NO.search(text, end + 3) if end > 0 and text.startswith(_FENCE, end - 1) else None
    headings = list(_FENCED_HEADING.finditer(text))
    used = _in_order(headings, names=("question", "reference", "response"))
    if yes_no is None or used is None or end - 1 < used[-1].end():
        return None
    for heading in headings:
        if heading not in used:
            raise Ambiguous(heading[0], "occurs twice")
    question, reference, response = used
    prompt = _fenced(text, begin=question.end(), end=reference.start())
    known = _fenced(text, begin=reference.end(), end=response.start())
    if prompt is None or known is None:
        return None
    fields = {
        "mode": Mode.POINTWISE,
        "prompt": prompt,
        "responses": [text[response.end() : end - 1]],
        "reference": known,
        "rubric": criteria_in(f"{instruction} {text[: question.start()]}"),
    }
    return _Reading(recognised=Recognised(fields=fields, form=YesNoForm(yes=yes_no[1], no=yes_no[2])), marker=question)


def _in_order(headings: Iterable[re.Match[str]], *, names: Sequence[str]) -> list[re.Match[str]] | None:
    """Return the first heading of each name that follows the heading of the previous name; None if one is missing."""
    used: list[re.Match[str]] = []
    for heading in headings:
        if len(used) < len(names) and heading.lastgroup == names[len(used)]:
            used.append(heading)
    return used if len(used) == len(names) else None


def _fenced(text: str, *, begin: int, end: int) -> str | None:
    """Return the content of a fence that was opened before `begin` and closes right before `end`.

    None: no fence closes there.
    """
    inside = text[begin:end].rstrip()
    return inside.removesuffix(_FENCE) if inside.endswith(_FENCE) else None


def _gold_and_predicted(text: str, instruction: str) -> _Reading | None:
    """Parse a prompt with a gold and a predicted solution, which asks for a final score of 0 or 1."""
    headings = list(_SOLUTION.finditer(text))
    used = _in_order(headings, names=("gold", "predicted"))
    stripped = text.rstrip()
    end = len(stripped) - len(_LAST_LINE)
    if used is None or not stripped.endswith(f"\n{_LAST_LINE}") or end < used[-1].end():
        return None
    gold, predicted = used
    if _FINAL_SCORE not in text[: gold.start()]:
        return None
    for heading in headings:
        if heading not in used:
            raise Ambiguous(heading[0], "occurs twice")
    rules = criteria_in(f"{instruction}\n{text[: gold.start()]}")
    fields = {
        "mode": Mode.POINTWISE,
        "prompt": rules or "Solve the problem.",
        "responses": [text[predicted.end() : end].strip("\n")],
        "reference": text[gold.end() : predicted.start()].strip("\n"),
    }
    form = RatingForm(low=0, high=1, pattern=f"{_FINAL_SCORE} {{}}")
    return _Reading(recognised=Recognised(fields=fields, form=form), marker=gold)


def criteria_in(instruction: str) -> str | None:
    """Return the sentences of an instruction that are not about the output format. None: no such sentence."""
    sentences = [sentence.strip() for sentence in _SENTENCE.split(instruction)]
    kept = [sentence for sentence in sentences if sentence and not _ABOUT_THE_FORM.search(sentence)]
    return " ".join(kept) or None
