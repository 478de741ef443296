"""The form of a request to the judge. The name of each field is the path of its value in the request, such as `responses.0`,
so that an error of the request is shown at its field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tirjudge.types import JudgeRequest, Mode, prompt_text

MAX_RESPONSE_FIELDS = 12
"""Maximum number of fields for responses."""

MAX_CRITERION_FIELDS = 8
"""Maximum number of fields for criteria."""

MIN_RESPONSE_FIELDS = 2
"""Number of fields for responses of an empty form."""

MAX_NUMBER_CHARS = 18
"""Maximum length of a number. A longer text is reported as it is."""

TEXTS = ("reference", "rubric")
CHOICES = ("mode", "tools", "orders")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestForm:
    """The values of a form for a request."""

    values: Mapping[str, str] = field(default_factory=dict)
    """Name of a field -> its text. A missing field is empty."""
    num_responses: int = MIN_RESPONSE_FIELDS
    """Number of fields for responses."""
    num_criteria: int = 1
    """Number of fields for criteria."""

    @classmethod
    def of_form(cls, form: Mapping[str, str]) -> RequestForm:
        """Return the form that a browser sent. Browsers send line breaks as CR LF; texts get LF."""
        return cls(
            values={name: text.replace("\r\n", "\n") for name, text in form.items()},
            num_responses=max(1, _num_fields(form, "responses.{}", at_most=MAX_RESPONSE_FIELDS)),
            num_criteria=max(1, _num_fields(form, "criteria.{}.text", at_most=MAX_CRITERION_FIELDS)),
        )

    @classmethod
    def of_request(cls, request: JudgeRequest) -> RequestForm:
        """Return the form with the values of a request."""
        values = {"prompt": prompt_text(request.prompt), "votes": str(request.votes)}
        values |= {name: str(getattr(request, name)) for name in CHOICES}
        values |= {name: getattr(request, name) or "" for name in TEXTS}
        values |= {f"responses.{index}": text for index, text in enumerate(request.responses)}
        for index, criterion in enumerate(request.criteria or ()):
            values |= {f"criteria.{index}.text": criterion.text, f"criteria.{index}.weight": f"{criterion.weight:g}"}
        return cls(
            values=values,
            num_responses=len(request.responses),
            num_criteria=max(1, len(request.criteria or ())),
        )

    def with_response(self) -> RequestForm:
        """Return the form with one more field for a response, up to the maximum."""
        return replace(self, num_responses=min(self.num_responses + 1, MAX_RESPONSE_FIELDS))

    def with_criterion(self) -> RequestForm:
        """Return the form with one more field for a criterion, up to the maximum."""
        return replace(self, num_criteria=min(self.num_criteria + 1, MAX_CRITERION_FIELDS))

    def text(self, name: str) -> str:
        """Return the text of a field."""
        return self.values.get(name, "")

    def request(self) -> JudgeRequest:
        """Return the request. Empty responses and criteria after the last one with a text are left out.

        Raises:
            pydantic.ValidationError: A value is not valid.
        """
        fields: dict[str, Any] = {"mode": self.text("mode") or str(Mode.PAIRWISE), "prompt": self.text("prompt")}
        fields |= {name: self.text(name) for name in (*TEXTS, *CHOICES) if self.text(name)}
        fields["responses"] = _without_empty_end([self.text(f"responses.{n}") for n in range(self.num_responses)])
        texts = _without_empty_end([self.text(f"criteria.{n}.text") for n in range(self.num_criteria)])
        if texts:
            fields["criteria"] = [self._criterion(index, text) for index, text in enumerate(texts)]
        if self.text("votes"):
            fields["votes"] = _integer(self.text("votes"))
        return JudgeRequest.model_validate(fields)

    def _criterion(self, index: int, text: str) -> dict[str, Any]:
        weight = self.text(f"criteria.{index}.weight")
        return {"text": text} | ({"weight": _decimal(weight)} if weight else {})

    @property
    def fields(self) -> list[str]:
        """Names of the fields where the page can show an error, and of the groups of fields."""
        responses = [f"responses.{n}" for n in range(self.num_responses)]
        criteria = [f"criteria.{n}.{part}" for n in range(self.num_criteria) for part in ("text", "weight")]
        return ["prompt", *TEXTS, *CHOICES, "votes", "responses", *responses, "criteria", *criteria]

    def field_of(self, param: str | None) -> str:
        """Return the field at which an error is shown: the one with this path, or the nearest around it. Empty: no field.

        >>> RequestForm().field_of("responses.9"), RequestForm().field_of("model")
        ('responses', '')
        """
        names, path = self.fields, (param or "").split(".", 4)[:4]
        paths = (".".join(path[:length]) for length in range(len(path), 0, -1))
        return next((found for found in paths if found in names), "")


def _num_fields(form: Mapping[str, str], name: str, *, at_most: int) -> int:
    return next((number for number in range(at_most) if name.format(number) not in form), at_most)


def _without_empty_end(texts: list[str]) -> list[str]:
    return texts[: max((number for number, text in enumerate(texts, 1) if text), default=0)]


def _integer(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_NUMBER_CHARS else text


def _decimal(text: str) -> float | str:
    try:
        return float(text) if len(text) <= MAX_NUMBER_CHARS else text
    except ValueError:
        return text
