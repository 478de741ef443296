"""The function `claim`: a program states what the evidence says about a part of a response.

The host checks that the part occurs in the response and that the cited calls and rows exist. It does not check that the rows
say what the program claims.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt

from tirjudge.claims import CLAIM, CitedRows, Claimed, claimed
from tirjudge.tools.functions import Budget, CallContext, ToolError, ToolFunction, checker, to_json_value
from tirjudge.types import CallRecord, ClaimStatus, Text

MAX_CLAIMS = 100
"""Maximum number of claims of one program."""

MAX_CITED_ROWS = 200
"""Maximum number of rows that a claim cites."""

MAX_SPAN_CHARS = 8000
"""Maximum length of the part of a response."""

MAX_RULE_CHARS = 200
"""Maximum length of the name of a rule."""

STATUSES = get_args(ClaimStatus)


def _spelled(value: Any) -> Any:
    """Return the spelling of a status with underscores, such as `violates_rule` for `violates a rule`."""
    if not isinstance(value, str):
        return value
    words = [
        word for word in value[:64].lower().replace("_", " ").replace("-", " ").split() if word not in ("a", "the")
    ]
    return "_".join(words)


class ClaimArguments(BaseModel):
    """Arguments of `claim`."""

    model_config = ConfigDict(extra="forbid")

    response: Text
    """Label or text of a shown response. Empty: the only one."""
    span: Annotated[Text, Field(min_length=1)] | Annotated[list[StrictInt], Field(min_length=2, max_length=2)]
    """The part of the response as exact text, or its start and end in characters."""
    status: Annotated[ClaimStatus, BeforeValidator(_spelled)]
    """What the evidence says about the part."""
    calls: list[CitedRows | Annotated[StrictInt, Field(ge=1)]] | None = Field(default=None, max_length=MAX_CITED_ROWS)
    """Calls of the program that the claim rests on. None: those since the previous claim."""
    rule: Annotated[Text, Field(min_length=1, max_length=MAX_RULE_CHARS)] | None = None
    """Name of the violated rule. None: no rule."""


def claim_function(*, citable: Collection[str]) -> ToolFunction:
    """Return the function `claim`.

    Args:
        citable: names of the functions whose calls are evidence.
    """

    async def handle(values: Mapping[str, Any], context: CallContext) -> Any:
        given = ClaimArguments.model_construct(**values)
        num_claims = sum(claimed(call) is not None for call in context.calls)
        if num_claims == MAX_CLAIMS:
            raise ToolError(f"a program makes at most {MAX_CLAIMS} claims")
        label, text = _shown(given.response, responses=context.responses)
        start, end = _place(given.span, text=text, label=label)
        calls = _cited(given.calls, context=context, citable=citable)
        _check_grounds(given, calls=calls, context=context)
        if (given.rule is None) == (given.status == "violates_rule"):
            raise ToolError('rule: give the name of the rule with status "violates_rule", and only with it')
        answer = Claimed(
            claim=num_claims + 1,
            response=label,
            start=start,
            end=end,
            status=given.status,
            rule=given.rule,
            calls=calls,
        )
        return answer.model_dump(mode="json")

    return ToolFunction(
        name=CLAIM,
        signature="(response, span, status, calls=None, rule=None)",
        description="records what the evidence says about a part of a response. response: its label; span: exact text in it; "
        f"status: one of {', '.join(STATUSES)}; calls: results or rows that show it, by default all since the last claim; "
        "rule: name of the violated rule.",
        parameters=tuple(ClaimArguments.model_fields),
        handle=handle,
        check=checker(ClaimArguments),
        to_json=to_json_value,
        input_schema=ClaimArguments.model_json_schema(),
        output_schema=Claimed.model_json_schema(),
        budget=Budget(calls=1024, seconds=60.0),
        is_deterministic=True,
    )


def _shown(response: str, *, responses: Mapping[str, str]) -> tuple[str, str]:
    """Return the label and the text of a response that a program names by its label or its text."""
    if response in responses:
        return response, responses[response]
    if len(responses) == 1:
        label, text = next(iter(responses.items()))
        if response in ("", "A", text):
            return label, text
    for label, text in responses.items():
        if text == response:
            return label, text
    labels = ", ".join(repr(label) for label in list(responses)[:26]) or "none"
    raise ToolError(f"response: expected a label ({labels}) or the whole text of a response, got {response[:40]!r}")


def _place(span: str | list[int], *, text: str, label: str) -> tuple[int, int]:
    """Return the start and the end of a part of a response, in characters."""
    if isinstance(span, str):
        start = text.find(span)
        if start < 0:
            raise ToolError(f"span: {span[:60]!r} does not occur in response {label or 'A'}; copy the text exactly")
        end = start + len(span)
    else:
        start, end = span
        if not 0 <= start < end <= len(text):
            raise ToolError(f"span: [{start}, {end}] is not a part of the response, which has {len(text):,} characters")
    if end - start > MAX_SPAN_CHARS:
        raise ToolError(
            f"span: {end - start:,} characters given, the limit is {MAX_SPAN_CHARS:,}; claim a shorter part"
        )
    return start, end


def _cited(
    given: Sequence[CitedRows | int] | None, *, context: CallContext, citable: Collection[str]
) -> list[CitedRows]:
    """Return the calls that a claim rests on, after checking that they exist."""
    if given is None:
        return [CitedRows(call=number) for number in _since_last_claim(context.calls, citable=citable)]
    cited = [CitedRows(call=each) if isinstance(each, int) else each for each in given]
    num_rows = sum(len(each.rows) for each in cited)
    if num_rows > MAX_CITED_ROWS:
        raise ToolError(f"calls: {num_rows:,} rows given, the limit is {MAX_CITED_ROWS:,}; cite whole results")
    for each in cited:
        if each.call > len(context.calls):
            raise ToolError(f"calls: call {each.call} does not exist; this program made {len(context.calls)} calls")
        call = context.calls[each.call - 1]
        if call.function not in citable:
            raise ToolError(
                f"calls: call {each.call} is a call of {call.function}; a claim rests on {', '.join(sorted(citable))}"
            )
        if call.error is not None:
            raise ToolError(f"calls: call {each.call} of {call.function} failed; cite a call that returned a result")
        length = context.num_rows[each.call - 1]
        wrong = [row for row in each.rows if length is None or not 0 <= row < length]
        if wrong:
            has = "has no rows" if length is None else f"has {length:,} rows, counted from 0"
            raise ToolError(f"calls: row {wrong[0]} of call {each.call} does not exist; its result {has}")
    return cited


def _since_last_claim(calls: Sequence[CallRecord], *, citable: Collection[str]) -> list[int]:
    """Return the numbers of the calls that returned evidence since the last claim."""
    numbers: list[int] = []
    for number, call in enumerate(calls, start=1):
        if claimed(call) is not None:
            numbers = []
        elif call.function in citable and call.error is None:
            numbers.append(number)
    return numbers


def _check_grounds(given: ClaimArguments, *, calls: Sequence[CitedRows], context: CallContext) -> None:
    """Check that a claim other than `not_in_evidence` rests on a result. An empty result shows something only if its stores
    are complete: in an open world, what a store does not contain is unknown.

    Raises:
        ToolError: it does not. The message says what to claim instead.
    """
    if given.status == "not_in_evidence":
        return
    if not calls:
        raise ToolError(
            f'calls: {given.status} rests on at least one result; query a store first, or use status "not_in_evidence"'
        )
    records = [context.calls[each.call - 1] for each in calls]
    if not all(map(_is_absence, records)):
        return
    names = dict.fromkeys(name for record in records for name in record.sources)
    open_world = [name for name in names if context.stores[name].world == "open"]
    if open_world or not names:
        where = f"the store {open_world[0]} is not complete (open world)" if open_world else "no store was queried"
        raise ToolError(
            f"status: every cited result is empty, and {where}, so this is not evidence of {given.status}; "
            'use status "not_in_evidence"'
        )


def _is_absence(call: CallRecord) -> bool:
    """Whether a result says only that nothing was found."""
    if call.num_bytes > 64:  # the record of a large result does not have it
        return False
    if call.function == "prove" and isinstance(call.result, dict):
        return call.result.get("proved") is None
    return call.result in ([], None) or (call.function == "ask" and call.result is False)
