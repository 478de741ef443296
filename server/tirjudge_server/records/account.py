"""The account of a recorded judgment: what it rests on, for a reviewer who checks it line by line.

The account is values; `account_page` writes them as a page. A record may lack fields that were withheld or erased: the
account then names them, and has what is left.
"""

from __future__ import annotations

import datetime
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from tirjudge.claims import CLAIM, is_valid
from tirjudge.types import (
    CallRecord,
    CitedCall,
    ClaimConflict,
    ClaimRecord,
    Criterion,
    Judgment,
    Outcome,
    StoreCard,
    Verdict,
    Wire,
    label_of,
)
from tirjudge_server.records.record import StoredJudgment

MAX_ROWS = 50
"""Maximum number of rows of a result in an account. The record has all."""

MAX_VALUE_CHARS = 4000
"""Maximum length of a row, of arguments, or of a result in an account, as JSON."""

MAX_MARKS = 500
"""Maximum number of claims that are marked in a response."""


class AccountCall(Wire):
    """A function call."""

    call: CitedCall
    """Position in the judgment. Its `rows` are the cited rows."""
    function: str
    """Name of the function."""
    version: str
    """Version of the function."""
    arguments: str | None
    """Arguments as JSON. None: too large for the record."""
    stores: list[str]
    """Names of the queried stores."""
    rows: dict[int, str]
    """Index -> cited row as JSON, at most `MAX_ROWS`."""
    result: str | None
    """Result as JSON. None: rows are cited, the call failed, or the result was too large for the record."""
    result_sha256: str | None
    """SHA-256 of the result. None: the call failed."""
    found_nothing: bool
    """Whether a store was queried and the result is empty."""
    error: str | None
    """Error of the call. None: it succeeded."""
    ms: float
    """Duration in milliseconds."""


class AccountClaim(Wire):
    """A claim with the calls that it rests on."""

    number: int
    """Number in the account, from 1."""
    claim: ClaimRecord
    """The claim as recorded."""
    calls: list[AccountCall]
    """Its calls."""
    outdated: list[str]
    """Names of its stores that were not valid on the day of the judgment."""


class AccountProgram(Wire):
    """A program of the judge."""

    rollout: int
    """Index of the rollout."""
    turn: int
    """Index of the turn."""
    shown: list[str]
    """Responses in the order that the model saw, such as `B = response 1`."""
    code: str | None
    """Source. None: the call had none."""
    output: str | None
    """Output that the model read."""
    outcome: Outcome
    """How it ended."""
    calls: list[AccountCall]
    """Its function calls."""


class MarkedText(Wire):
    """A part of a response, with the claims on it."""

    text: str
    """The part."""
    claims: list[int]
    """Numbers of the claims. Empty: none."""


class AccountStore(Wire):
    """A store of evidence that was queried."""

    card: StoreCard
    """The store on the day of the judgment."""
    valid: bool
    """Whether it was valid on that day."""


class Account(Wire):
    """What a judgment rests on."""

    id: str
    """Id of the judgment."""
    created: str
    """Time of the judgment, ISO 8601 in UTC."""
    mode: str
    """Judging task."""
    model: str
    """Name of the judge."""
    verdict: Verdict
    """The verdict."""
    prompt: str | None
    """The question. None: withheld or erased."""
    responses: list[list[MarkedText]] | None
    """The responses with the claims on them. None: withheld or erased."""
    reference: str | None
    """The known good answer. None: none, withheld or erased."""
    criteria: list[Criterion]
    """The criteria. Empty: none, withheld or erased."""
    rubric: str | None
    """The rubric. None: none, withheld or erased."""
    claims: list[AccountClaim]
    """The claims, numbered."""
    rules: dict[str, list[int]]
    """Name of a violated rule -> numbers of the claims."""
    not_found: list[AccountCall]
    """Queries that found nothing."""
    conflicts: list[ClaimConflict]
    """Claims that contradict each other, and nothing decides. Their numbers are from 0, as in the judgment."""
    stores: list[AccountStore]
    """The queried stores."""
    programs: list[AccountProgram]
    """The programs, in the order of the rollouts."""
    ran_candidate_in_process: bool
    """Whether a program executed a response in its own process."""
    versions: dict[str, Any]
    """Versions of everything that made the judgment."""
    missing: list[str]
    """Fields that were withheld or erased."""
    sequence: int
    """Position in the chain of records, from 1."""
    hash: str
    """Hash of the record."""
    previous_hash: str
    """Hash of the record before it."""
    intact: bool
    """Whether the record matches its hash."""


def account_of(record: StoredJudgment) -> Account:
    """Return the account of a record."""
    judgment, request = record.judgment, record.request_fields
    created = datetime.datetime.fromtimestamp(judgment.created, tz=datetime.UTC)
    cards = {card.name: card for card in judgment.stores}
    outdated = [name for name, card in cards.items() if not is_valid(card, day=created.date())]
    claims = [
        AccountClaim(
            number=number,
            claim=claim,
            calls=[call for cited in claim.calls if (call := _call(judgment, cited)) is not None],
            outdated=[name for name in claim.sources if name in outdated],
        )
        for number, claim in enumerate(judgment.claims, start=1)
    ]
    programs = _programs(judgment)
    on_response: dict[int, list[AccountClaim]] = defaultdict(list)
    for each in claims:
        on_response[each.claim.response].append(each)
    responses, prompt = request.get("responses"), request.get("prompt")
    return Account(
        id=record.id,
        created=created.isoformat(),
        mode=judgment.mode,
        model=judgment.model,
        verdict=judgment.verdict,
        prompt=None if prompt is None else _text_of(prompt),
        responses=None if responses is None else [_marked(each, on_response[n]) for n, each in enumerate(responses)],
        reference=request.get("reference"),
        criteria=request.get("criteria") or [],
        rubric=request.get("rubric"),
        claims=claims,
        rules=_rules(claims),
        not_found=[call for program in programs for call in program.calls if call.found_nothing],
        conflicts=judgment.conflicts,
        stores=[AccountStore(card=card, valid=card.name not in outdated) for card in judgment.stores],
        programs=programs,
        ran_candidate_in_process=judgment.ran_candidate_in_process,
        versions=dict(record.values["versions"]),
        missing=list(record.content.erased),
        sequence=record.seq,
        hash=record.hash,
        previous_hash=record.previous,
        intact=record.is_intact,
    )


def _text_of(prompt: str | list[Mapping[str, str]]) -> str:
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in prompt)


def _rules(claims: Sequence[AccountClaim]) -> dict[str, list[int]]:
    rules: dict[str, list[int]] = {}
    for each in claims:
        if each.claim.rule is not None:
            rules.setdefault(each.claim.rule, []).append(each.number)
    return rules


def _programs(judgment: Judgment) -> list[AccountProgram]:
    return [
        AccountProgram(
            rollout=i,
            turn=k,
            shown=[f"{label_of(place)} = response {index + 1}" for place, index in enumerate(rollout.order)],
            code=turn.code,
            output=turn.output,
            outcome=turn.outcome,
            calls=[
                _account_call(call, CitedCall(rollout=i, turn=k, call=number))
                for number, call in enumerate(turn.calls)
                if call.function != CLAIM
            ],
        )
        for i, rollout in enumerate(judgment.rollouts)
        for k, turn in enumerate(rollout.turns)
        if turn.outcome is not None
    ]


def _call(judgment: Judgment, cited: CitedCall) -> AccountCall | None:
    """Return a cited call. None: the calls were erased."""
    try:
        call = judgment.rollouts[cited.rollout].turns[cited.turn].calls[cited.call]
    except IndexError:
        return None
    return _account_call(call, cited)


def _account_call(call: CallRecord, cited: CitedCall) -> AccountCall:
    rows, result = {}, None
    if isinstance(call.result, list) and cited.rows:
        rows = {row: _json(call.result[row]) for row in cited.rows[:MAX_ROWS] if 0 <= row < len(call.result)}
    elif call.error is None and (call.result is not None or call.num_bytes <= len("null")):
        result = _json(call.result)
    return AccountCall(
        call=cited,
        function=call.function,
        version=call.version,
        arguments=None if call.arguments is None else _json(call.arguments),
        stores=list(call.sources),
        rows=rows,
        result=result,
        result_sha256=call.result_sha256,
        found_nothing=bool(call.sources) and call.error is None and result in ("[]", "{}", "null", "false"),
        error=call.error,
        ms=call.ms,
    )


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}... ({len(text):,} characters)"


def _marked(text: str, claims: Sequence[AccountClaim]) -> list[MarkedText]:
    """Split a response where a claim starts or ends."""
    starts: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    for each in claims[:MAX_MARKS]:
        starts.setdefault(each.claim.start, []).append(each.number)
        ends.setdefault(each.claim.end, []).append(each.number)
    parts: list[MarkedText] = []
    open_claims: set[int] = set()
    places = sorted({0, len(text), *starts, *ends})
    for place, following in zip(places, [*places[1:], len(text)], strict=True):
        open_claims.difference_update(ends.get(place, ()))
        open_claims.update(starts.get(place, ()))
        if place < following:
            parts.append(MarkedText(text=text[place:following], claims=sorted(open_claims)))
    return parts
