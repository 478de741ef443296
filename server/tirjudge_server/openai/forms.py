"""Output formats for verdicts: the format that the caller's judge prompt requests, or JSON.

A format never turns an abstention or a tie into a score. A verdict that a format cannot express is written as text that the
caller's parser does not read as a verdict.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tirjudge.http.protocol import invalid, shown
from tirjudge.types import GOOD_SCORE, Judgment, Verdict
from tirjudge_server.caller_schema import CallerSchema, UncheckableValue
from tirjudge_web.errors import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class FormattedVerdict:
    """Content of an answer's message."""

    content: str | None
    """The formatted verdict. None: `refusal` is given instead."""
    refusal: str | None = None
    """Why the verdict does not fit the requested format. None: the verdict fits."""


class Form(Protocol):
    """An output format for verdicts."""

    def write(self, judgment: Judgment) -> FormattedVerdict:
        """Format the verdict of a judgment.

        Raises:
            Refused: The caller's schema cannot be checked for this verdict.
        """
        ...


def undecided(verdict: Verdict) -> str:
    """Return a tie or an abstention as text."""
    return f"{verdict.status}: {verdict.reason}"


NO_SCALE = "undecided: a scalar reward model gives raw scores, which have no scale"
"""Text in place of a rating, or of yes or no, of a scalar reward model."""


def is_good(verdict: Verdict) -> bool:
    """Whether a single response is probably good: P(score >= 6) is at least 0.5; without probabilities, its score is 6 or
    higher."""
    if verdict.final_probabilities:
        return verdict.final_probabilities[0] >= 0.5
    score = (verdict.scores or [None])[0]
    return score is not None and score >= GOOD_SCORE


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceForm:
    """`[[A]]`, or `[[A>B]]`."""

    tie: str | None
    """The caller's notation for a tie. None: the caller's prompt offers no tie."""
    arrows: bool = False
    """Whether to write `[[A>B]]` instead of `[[A]]`."""

    def write(self, judgment: Judgment) -> FormattedVerdict:
        verdict = judgment.verdict
        if verdict.status == "tie" and self.tie is not None:
            return FormattedVerdict(content=self.tie)
        if verdict.status != "decided":
            return FormattedVerdict(content=undecided(verdict))
        if self.arrows:
            return FormattedVerdict(content="[[A>B]]" if verdict.best == 0 else "[[B>A]]")
        return FormattedVerdict(content=f"[[{verdict.label}]]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingForm:
    """A number on the caller's scale, such as `Rating: [[7]]`."""

    low: int
    """Lowest rating."""
    high: int
    """Highest rating."""
    pattern: str
    """Format string with one `{}` for the rating."""

    def write(self, judgment: Judgment) -> FormattedVerdict:
        verdict = judgment.verdict
        if judgment.raw_scores is not None:
            return FormattedVerdict(content=NO_SCALE)
        score = (verdict.scores or [None])[0]
        if verdict.status != "decided" or score is None:
            return FormattedVerdict(content=undecided(verdict))
        return FormattedVerdict(content=self.pattern.format(self._rating(verdict, score=score)))

    def _rating(self, verdict: Verdict, *, score: float) -> str:
        """Return the rating.

        On the scale of 1 to 10 this is the score that the judge wrote, rounded if the judge has another scale. On other
        scales the expected score is mapped and rounded.
        """
        if (self.low, self.high) == (1, 10) and verdict.label is not None:
            return verdict.label if verdict.label.isdigit() else str(round(float(verdict.label)))
        if self.high - self.low == 1:
            return str(self.high if is_good(verdict) else self.low)
        return str(round(self.low + (score - 1) * (self.high - self.low) / 9))


@dataclass(frozen=True, slots=True, kw_only=True)
class YesNoForm:
    """One of two words."""

    yes: str
    """Written for a good response."""
    no: str
    """Written for other responses."""

    def write(self, judgment: Judgment) -> FormattedVerdict:
        verdict = judgment.verdict
        if judgment.raw_scores is not None:
            return FormattedVerdict(content=NO_SCALE)
        if verdict.status != "decided":
            return FormattedVerdict(content=undecided(verdict))
        return FormattedVerdict(content=self.yes if is_good(verdict) else self.no)


JSON_TYPES: Mapping[str, frozenset[str]] = {
    "status": frozenset({"string"}),
    "best": frozenset({"integer", "number", "null"}),
    "label": frozenset({"string", "null"}),
    "scores": frozenset({"array", "null"}),
    "probabilities": frozenset({"array", "null"}),
    "confidence": frozenset({"number", "null"}),
    "label_mass": frozenset({"number", "null"}),
    "forced": frozenset({"boolean"}),
    "basis": frozenset({"string", "null"}),
    "reason": frozenset({"string", "null"}),
    "score": frozenset({"number", "integer", "null"}),
    "reasoning": frozenset({"string"}),
}
"""Properties that a caller's schema may request -> the JSON types of their values. These are the fields of a verdict, `score`
(the score of a single response) and `reasoning` (the text of the judge's last turn)."""


MAX_VERDICT_STEPS = 5_000
"""Maximum number of steps to check a verdict against a caller's schema."""

_SAMPLES = {"string": "", "integer": 1, "number": 0.5, "boolean": True, "array": [0.5, 0.5], "null": None}
"""JSON type -> a value, to try a schema before a verdict exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedSchema:
    """A schema that the content must match."""

    check: CallerSchema
    """Checks the content."""
    is_integer: Mapping[str, bool]
    """Properties of the content, in order -> whether the schema names integers only."""

    def try_out(self) -> None:
        """Check samples of verdicts.

        Raises:
            UncheckableValue: A verdict cannot be checked.
        """
        types = {name: JSON_TYPES[name] for name in self.is_integer}
        self.check.try_on({name: _SAMPLES[min(types[name] - {"null"})] for name in types})
        self.check.try_on({name: _SAMPLES[min(types[name] & {"null"} or types[name])] for name in types})


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonForm:
    """The verdict as one JSON object."""

    schema: RequestedSchema | None = None
    """The caller's schema. None: no schema; write the whole verdict."""

    def write(self, judgment: Judgment) -> FormattedVerdict:
        if self.schema is None:
            return FormattedVerdict(content=judgment.verdict.model_dump_json())
        known = _known(judgment)
        values = {
            name: round(known[name]) if is_integer and isinstance(known[name], float) else known[name]
            for name, is_integer in self.schema.is_integer.items()
        }
        try:
            problem = self.schema.check.problem(values)
        except UncheckableValue as error:
            raise _refused(str(error)) from None
        if problem is None:
            return FormattedVerdict(content=json.dumps(values, ensure_ascii=False))
        why = f" ({undecided(judgment.verdict)})" if judgment.verdict.reason else ""
        return FormattedVerdict(content=None, refusal=f"the verdict does not fit the schema: {problem}{why}")


def _known(judgment: Judgment) -> dict[str, Any]:
    verdict = judgment.verdict
    turns = judgment.rollouts[-1].turns if judgment.rollouts else []
    scores = verdict.scores or [None]
    return {
        **verdict.model_dump(mode="json"),
        "basis": verdict.basis,
        "score": scores[0] if len(scores) == 1 else None,
        "reasoning": turns[-1].text if turns else "",
    }


def json_form(response_format: Mapping[str, Any]) -> JsonForm:
    """Return the format for a `response_format` of JSON.

    Raises:
        Refused: The schema is invalid, cannot be checked, or requests a property that a verdict lacks.
    """
    if response_format.get("type") != "json_schema":
        return JsonForm()
    described = response_format.get("json_schema")
    schema = described.get("schema") if isinstance(described, Mapping) else None
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(schema, Mapping) or not isinstance(properties, Mapping) or not properties:
        raise _refused("expected: a schema of an object with properties")
    required = schema.get("required", [])
    try:
        names = _requested(properties, required=required)
        check = CallerSchema(schema, max_steps=MAX_VERDICT_STEPS)
        is_integer = {name: _types(properties.get(name)) & {"integer", "number"} == {"integer"} for name in names}
        requested = RequestedSchema(check=check, is_integer=is_integer)
        requested.try_out()
    except RecursionError:
        raise _refused("the schema is nested too deeply") from None
    except (ValueError, UncheckableValue) as error:
        raise _refused(str(error)) from None
    return JsonForm(schema=requested)


def _requested(properties: Mapping[str, Any], *, required: Any) -> list[str]:
    """Return the properties that a schema describes or requires.

    Raises:
        Refused: The schema requests a property that a verdict does not have, or a type that differs from the property's.
    """
    names = [*properties, *(required if isinstance(required, list) else [])]
    for name in names:
        if not isinstance(name, str) or name not in JSON_TYPES:
            raise _refused(f"a verdict has no {shown(name)}; expected: {', '.join(JSON_TYPES)}")
        wanted = _types(properties.get(name))
        if wanted and not wanted & JSON_TYPES[name]:
            raise _refused(
                f"{name} is {' or '.join(sorted(JSON_TYPES[name]))}, not {shown(' or '.join(sorted(wanted)))}"
            )
    return list(dict.fromkeys(names))


def _refused(message: str) -> Refused:
    return Refused(invalid(f"response_format: {message}", param="response_format", code="unsupported_schema"))


def _types(schema: Any) -> set[str]:
    """Return the JSON types that a property's schema allows. Empty: any type, or a schema that is not analyzed."""
    found: set[str] = set()
    return found if _collect_types(schema, into=found) else set()


def _collect_types(schema: Any, *, into: set[str]) -> bool:
    """Add the types that a schema names. Return whether every branch of the schema names one.

    All branches add to one set, because one set per branch would be copied at every level of nesting.
    """
    if not isinstance(schema, Mapping):
        return False
    if isinstance(schema.get("anyOf"), list):
        named = [_collect_types(branch, into=into) for branch in schema["anyOf"]]
        return bool(named) and all(named)
    given = schema.get("type")
    names = [name for name in (given if isinstance(given, list) else [given]) if isinstance(name, str)]
    into.update(names)
    return bool(names)
