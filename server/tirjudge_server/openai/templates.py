"""The prompts in which judges are asked today, read back into a request, with the form in which they want their answer.

Four are known: two or more answers between `[The Start of Assistant A's Answer]` markers (`[[A]]`, `[[A>B]]`), one answer
between such markers (`[[rating]]`), a question, ground truth and response in fenced sections ("yes" or "no"), and a gold
and a predicted solution (`### Final Score: 1`). An answer that contains such markers itself could be read in two ways:
then nothing is guessed, and the request is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tirjudge.protocol import invalid
from tirjudge.types import Mode, label_of
from tirjudge.web.errors import Refused
from tirjudge_server.openai.forms import Form, PreferenceForm, RatingForm, YesNoForm

_OPEN, _CLOSE = r"(?:\[|<\|)", r"(?:\]|\|>)"
_ANSWER = re.compile(
    rf"{_OPEN}The (Start|End) of (?:the )?(?:AI )?Assistant(?: ([A-Z]))?(?:[’']s)? (?:Answer|Response){_CLOSE}",
    re.IGNORECASE,
)
_REFERENCE = re.compile(rf"{_OPEN}The (Start|End) of (?:the )?Reference (?:Answer|Response){_CLOSE}", re.IGNORECASE)
_QUESTION = re.compile(
    rf"^[ \t]*(?:{_OPEN}(?:User |Client )?(?:Question|Prompt){_CLOSE}"
    rf"|{_OPEN}The Start of (?:the )?(?:User(?:[’']s)? )?(?:Question|Prompt|Instruction){_CLOSE})",
    re.IGNORECASE | re.MULTILINE,
)
_QUESTION_END = re.compile(
    rf"{_OPEN}The End of (?:the )?(?:User(?:[’']s)? )?(?:Question|Prompt|Instruction){_CLOSE}\s*\Z", re.IGNORECASE
)

_FENCED = re.compile(
    r"^Question:\s*```\n(?P<prompt>.*?)\n```\s*^(?:Ground truth|Reference) answer:\s*```\n(?P<reference>.*?)\n```\s*"
    r"^Response:\s*```\n(?P<response>.*)\n```\s*(?P<form>[^`]*)\Z",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
_FENCED_HEADINGS = re.compile(
    r"^(?:Question|(?:Ground truth|Reference) answer|Response):\s*```", re.IGNORECASE | re.MULTILINE
)
_YES_NO = re.compile(r"[\"'“](yes)[\"'”] or [\"'“](no)[\"'”]", re.IGNORECASE)

_GOLD = re.compile(
    r"\A(?P<rules>.*?)^GOLD SOLUTION:\n(?P<reference>.*)^PREDICTED SOLUTION:\n(?P<response>.*)^Answer:\s*\Z",
    re.MULTILINE | re.DOTALL,
)
_FINAL_SCORE = "### Final Score:"

_SCALE = re.compile(r"(?:scale (?:of|from)|from|between)\s+(\d+)\s*(?:to|and|-|–)\s*(\d+)", re.IGNORECASE)
MAX_SCALE_DIGITS = 9
"""Of either end of a scale."""

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_ABOUT_THE_FORM = re.compile(r"\[\[|final score|rating:|following this format|^or$|<\||^\[[\w ]+\]$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """A prompt that asks for a judgment."""

    fields: dict[str, Any]
    """Of a `JudgeRequest`."""
    form: Form


def recognise(text: str, *, instruction: str = "") -> Recognised | None:
    """The request in a judge's prompt; None: it is no prompt that is known here.

    Args:
        text: the user's message.
        instruction: what stands before it, such as a system message.

    Raises:
        Refused: it is one, but can be read in more than one way.
    """
    for reading in (_marked_answers, _fenced_sections, _gold_and_predicted):
        found = reading(text, instruction)
        if found is not None:
            return found
    return None


def _marked_answers(text: str, instruction: str) -> Recognised | None:
    """`[The Start of Assistant A's Answer] ... [The End of Assistant A's Answer]`, once for each answer."""
    markers = list(_ANSWER.finditer(text))
    if not markers:
        return None
    names = [marker[2].upper() if marker[2] else None for marker in markers[::2]]
    expected = [None] if names == [None] else [label_of(index) for index in range(len(names))]
    _check_pairs(markers, names=names, expected=expected)
    spans = [(start, end) for start, end in zip(markers[::2], markers[1::2], strict=True)]
    responses = [text[start.end() : end.start()].strip("\n") for start, end in spans]
    reference, reference_span = _reference(text)
    first = min(start for start in (markers[0].start(), *reference_span) if start >= 0)
    question = _QUESTION.search(text, 0, first)
    if question is None:
        raise _ambiguous("no [User Question] before the answers")
    prompt = _QUESTION_END.sub("", text[question.end() : first].rstrip()).strip()
    outside = " ".join((instruction, text[: question.start()], text[markers[-1].end() :]))
    fields = {"prompt": prompt, "responses": responses, "rubric": criteria_in(outside)}
    if reference is not None:
        fields["reference"] = reference
    if len(responses) == 1:
        return Recognised(fields=fields | {"mode": Mode.POINTWISE}, form=_rating_form(outside))
    mode = Mode.PAIRWISE if len(responses) == 2 else Mode.LISTWISE
    return Recognised(fields=fields | {"mode": mode}, form=_preference_form(outside, num_responses=len(responses)))


def _check_pairs(
    markers: Sequence[re.Match[str]], *, names: Sequence[str | None], expected: Sequence[str | None]
) -> None:
    """Each answer begins and ends once, in the order of the letters: an answer cannot end itself and begin another."""
    kinds = [marker[1].lower() for marker in markers]
    ends = [marker[2].upper() if marker[2] else None for marker in markers[1::2]]
    if kinds != ["start", "end"] * (len(markers) // 2) or len(kinds) % 2 or names != expected or ends != list(expected):
        raise _ambiguous("the markers of the answers are not one pair for each, in order")


def _reference(text: str) -> tuple[str | None, list[int]]:
    """The reference answer, and where its markers stand."""
    markers = list(_REFERENCE.finditer(text))
    if not markers:
        return None, []
    if [marker[1].lower() for marker in markers] != ["start", "end"]:
        raise _ambiguous("the markers of the reference answer are not one pair")
    start, end = markers
    return text[start.end() : end.start()].strip("\n"), [start.start()]


def _preference_form(outside: str, *, num_responses: int) -> PreferenceForm:
    if "[[A>B]]" in outside:
        return PreferenceForm(tie="[[A=B]]", arrows=True)
    offers_tie = num_responses == 2 and "[[C]]" in outside
    return PreferenceForm(tie="[[C]]" if offers_tie else None)


def _rating_form(outside: str) -> RatingForm:
    scale = _SCALE.search(outside)
    if scale and max(len(scale[1]), len(scale[2])) > MAX_SCALE_DIGITS:
        raise _ambiguous(f"a scale whose ends have more than {MAX_SCALE_DIGITS} digits")
    low, high = (int(scale[1]), int(scale[2])) if scale else (1, 10)
    if low >= high:
        raise _ambiguous(f"a scale from {low} to {high}")
    return RatingForm(low=low, high=high, pattern="Rating: [[{}]]" if "rating" in outside.lower() else "[[{}]]")


def _fenced_sections(text: str, instruction: str) -> Recognised | None:
    """Question, ground truth and response, each in a fence, and the wish for "yes" or "no"."""
    match = _FENCED.search(text)
    wish = _YES_NO.search(match["form"]) if match else None
    if match is None or wish is None:
        return None
    if len(_FENCED_HEADINGS.findall(text)) != 3:
        raise _ambiguous("a heading stands there twice")
    fields = {
        "mode": Mode.POINTWISE,
        "prompt": match["prompt"],
        "responses": [match["response"]],
        "reference": match["reference"],
        "rubric": criteria_in(f"{instruction} {text[: match.start()]}"),
    }
    return Recognised(fields=fields, form=YesNoForm(yes=wish[1], no=wish[2]))


def _gold_and_predicted(text: str, instruction: str) -> Recognised | None:
    """A gold and a predicted solution, and the wish for a final score of 0 or 1."""
    match = _GOLD.search(text)
    if match is None or _FINAL_SCORE not in match["rules"]:
        return None
    if text.count("\nGOLD SOLUTION:\n") + text.count("\nPREDICTED SOLUTION:\n") != 2:
        raise _ambiguous("a heading stands there twice")
    rules = criteria_in(f"{instruction}\n{match['rules']}")
    fields = {
        "mode": Mode.POINTWISE,
        "prompt": rules or "Solve the problem.",
        "responses": [match["response"].strip("\n")],
        "reference": match["reference"].strip("\n"),
    }
    return Recognised(fields=fields, form=RatingForm(low=0, high=1, pattern=f"{_FINAL_SCORE} {{}}"))


def criteria_in(instruction: str) -> str | None:
    """What an instruction says besides the form of the answer, which is not the judge's business; None: nothing."""
    sentences = [sentence.strip() for sentence in _SENTENCE.split(instruction)]
    kept = [sentence for sentence in sentences if sentence and not _ABOUT_THE_FORM.search(sentence)]
    return " ".join(kept) or None


def _ambiguous(what: str) -> Refused:
    message = (
        f"messages: {what}, so that it is not clear what is to be judged; `judge` in the body says it without doubt"
    )
    return Refused(invalid(message, param="messages", code="ambiguous_template"))
