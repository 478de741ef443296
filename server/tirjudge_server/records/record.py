"""Convert judgments to the fields of a record, and records to judgments."""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from importlib.metadata import version
from typing import Any

from tirjudge.judge import Judge
from tirjudge.right import is_flipped
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_server.call import Call
from tirjudge_server.coalescing import NOT_JUDGED
from tirjudge_server.records.chain import record_hash
from tirjudge_server.records.sealing import Sealed, canonical, load, sha256

SETTINGS = frozenset(
    {"mode", "model", "tools", "orders", "votes", "max_tool_calls", "force_verdict", "require", "min_confidence"}
    | {"temperature", "seed", "functions", "candidate_code"}
)
"""Fields of a request without free text. They are stored as one field and are never erased."""

ERASABLE = (
    "request.prompt",
    "request.responses",
    "request.reference",
    "request.criteria",
    "request.rubric",
    "request.evidence",
    "turns",
    "calls",
    "claims",
    "conflicts",
    "stores",
    "reasons",
    "note",
    "caller",
    "request_id",
)
"""Fields that can be withheld or erased: texts of the request, texts of the model, function calls with the claims that rest
on them, reasons of checks, notes of labels, and the caller's identity."""

_TEXTS = frozenset(name for name in ERASABLE if name.startswith("request."))
"""Texts of the request. Reasons of checks may quote them."""

_IN_CALLS = _TEXTS | {"turns"}
"""Fields whose texts programs pass to functions: a call such as `run(response_a)` has a whole response in its arguments."""

_OF_CALLS = ("claims", "conflicts", "stores")
"""Fields of a judgment that are derived from its calls. A record has them as separate fields."""

KEPT = frozenset({"request", "rollouts", "judgment", "versions", "dialect"})
"""Fields that every record has and that cannot be erased."""


def with_calls(fields: Collection[str]) -> frozenset[str]:
    """Return the fields to withhold or erase. They include the function calls and the reasons of checks if these may have
    texts of the fields, and with the calls what is derived from them."""
    chosen = frozenset(fields)
    if chosen & _TEXTS:
        chosen |= {"reasons"}
    return chosen | {"calls", *_OF_CALLS} if chosen & (_IN_CALLS | {"calls"}) else chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedFunction:
    """A function that programs could call."""

    version: str
    """Version of the function."""
    parameters: list[str]
    """Names of the parameters that can be given by position, in order."""
    is_deterministic: bool
    """As in `ToolFunction`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Everything on a server that can influence a judgment."""

    model: str
    """Name of the model."""
    fingerprint: str | None
    """Hash of the weights. None: unknown, because the engine is remote."""
    profile_sha256: str
    """Hash of the model's profile."""
    prompts_sha256: str
    """Hash of the format's prompt files."""
    format: str
    """Name of the format."""
    tools: list[str]
    """Names of the tools that the model may call."""
    functions: Mapping[str, OfferedFunction] = field(default_factory=dict)
    """Name -> function that programs may call."""
    checks: Mapping[str, str] | None = None
    """Name -> SHA-256 of the checks of responses. None: no checks."""
    stores: Mapping[str, Any] = field(default_factory=dict)
    """Name -> card of each registered store of evidence, without its contents, as JSON values."""
    sandbox: str | None
    """Isolation level of the sandbox. None: no sandbox."""
    limits: dict[str, Any] | None
    """Limits of programs. None: unknown."""
    package: str
    """Version of tirjudge."""
    python: str
    """Version of Python."""


def versions_of(judge: Judge, *, fingerprint: str | None, isolation: str | None) -> Versions:
    """Return the versions behind a judge.

    Args:
        judge: The judge.
        fingerprint: Hash of the weights. None: unknown.
        isolation: Isolation level of the sandbox. None: no sandbox.
    """
    limits = getattr(judge.sandbox, "limits", None)
    return Versions(
        model=judge.profile.name,
        fingerprint=fingerprint,
        profile_sha256=sha256(canonical(judge.profile.as_first_written())),
        prompts_sha256=judge.format.sha256,
        format=judge.format.name,
        tools=[tool.name for tool in judge.tools],
        functions={
            each.name: OfferedFunction(
                version=each.version, parameters=list(each.parameters), is_deterministic=each.is_deterministic
            )
            for each in judge.functions
        },
        checks=None if judge.checks is None else {card.name: card.sha256 for card in judge.checks.cards},
        stores={
            name: card.model_dump(mode="json", exclude={"lines", "size"})
            for each in judge.functions
            for name, card in each.stores.items()
        },
        sandbox=isolation,
        limits=asdict(limits) if is_dataclass(limits) and not isinstance(limits, type) else None,
        package=version("tirjudge"),
        python=platform.python_version(),
    )


def fields_of(request: JudgeRequest, judgment: Judgment, *, call: Call, versions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record as JSON values. Texts and calls are separate fields, so that they can be erased
    separately. A judgment without calls has no field for them."""
    request_json = request.model_dump(mode="json")
    judgment_json = judgment.model_dump(mode="json")
    rollouts = judgment_json.pop("rollouts")
    fields = {
        f"request.{name}": value for name, value in request_json.items() if name not in SETTINGS and value is not None
    }
    turns = [rollout.pop("turns") for rollout in rollouts]
    calls = [[turn.pop("calls", []) for turn in of_rollout] for of_rollout in turns]
    if any(map(any, calls)):
        fields["calls"] = calls
    fields |= {name: judgment_json.pop(name) for name in _OF_CALLS if name in judgment_json}
    if "checks" in judgment_json:
        fields["reasons"] = [[_take_reasons(result) for result in results] for results in judgment_json["checks"]]
    return fields | {
        "request": {name: request_json[name] for name in request_json if name in SETTINGS},
        "turns": turns,
        "rollouts": rollouts,
        "judgment": judgment_json,
        "versions": versions,
        "caller": call.caller,
        "request_id": call.request_id,
        "dialect": call.dialect,
    }


_REASONS = ("reasons", "skipped")
"""Fields of the result of a check that quote the response, rows of stores, or other texts."""


def _take_reasons(result: dict[str, Any]) -> dict[str, Any]:
    """Remove the reasons from the result of a check, and return them. A skipped check stays skipped."""
    taken = {name: result.pop(name) for name in _REASONS if name in result}
    if "skipped" in taken:
        result["skipped"] = ""
    return taken


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredJudgment:
    """A recorded judgment."""

    seq: int
    """Position in the chain, from 1."""
    id: str
    created_ms: int
    """Unix time in milliseconds."""
    previous: str
    """Hash of the previous record."""
    hash: str
    """Hash of this record."""
    content: Sealed
    values: Mapping[str, Any]
    """Name of a field -> JSON value, without erased fields."""

    @property
    def request_fields(self) -> dict[str, Any]:
        """The fields of the request that are not erased."""
        texts = {name.removeprefix("request."): v for name, v in self.values.items() if name.startswith("request.")}
        return self.values["request"] | texts

    @property
    def judgment(self) -> Judgment:
        """The judgment. Its rollouts have no turns if the turns are erased, and its turns no calls if these are. It has no
        claims then either. Its checks have no reasons if these are erased."""
        rollouts = self.values["rollouts"]
        turns = self.values.get("turns", [[] for _ in rollouts])
        if "calls" in self.values:
            turns = [
                [turn | {"calls": its} for turn, its in zip(*both, strict=True)]
                for both in zip(turns, self.values["calls"], strict=True)
            ]
        merged = [rollout | {"turns": its} for rollout, its in zip(rollouts, turns, strict=True)]
        derived = {name: self.values[name] for name in _OF_CALLS if name in self.values}
        if "reasons" in self.values:
            both = zip(self.values["judgment"]["checks"], self.values["reasons"], strict=True)
            derived["checks"] = [
                [result | its for result, its in zip(results, reasons, strict=True)] for results, reasons in both
            ]
        return Judgment.model_validate(self.values["judgment"] | derived | {"rollouts": merged})

    @property
    def is_intact(self) -> bool:
        """Whether the record matches its hash. Its position in the chain is verified by `audit` only."""
        return self.hash == record_hash(self, kind="judgment", content=self.content)


def record_of(row: Any) -> StoredJudgment:
    """Parse a row of the table.

    Raises:
        ValueError: The record is damaged and cannot be read.
    """
    content = load(row.content)
    values = content.values
    if missing := KEPT - values.keys():
        raise ValueError(f"the field {min(missing)} is missing")
    copied = {name: getattr(row, name) for name in ("seq", "id", "created_ms", "previous", "hash")}
    return StoredJudgment(**copied, content=content, values=values)


def flags_of(judgment: Judgment, *, has_turns: bool = True) -> dict[str, Any]:
    """Return the columns by which a judgment is filtered.

    Args:
        judgment: The judgment.
        has_turns: Whether its turns are known. Without them, `tool_error` is None.
    """
    verdict = judgment.verdict
    failed = any(not outcome.is_ok for rollout in judgment.rollouts for outcome in rollout.outcomes)
    return {
        "label": verdict.label,
        "forced": verdict.forced,
        "flipped": is_flipped(judgment),
        "basis": verdict.basis,
        "tool_error": failed if has_turns else None,
    }


def judged_content(request: JudgeRequest) -> dict[str, Any]:
    """Return the fields of a request that can influence its judgment."""
    return request.model_dump(mode="json", exclude_none=True, exclude=NOT_JUDGED)


def content_key(request: JudgeRequest, *, caller: str | None, versions: str) -> str:
    """Return a hash that is equal for requests of one caller that must be judged equally.

    It includes the caller. Callers do not share judgments, so that no caller learns about the requests of others.
    """
    return sha256(canonical([caller, judged_content(request), versions]))


def idempotency_hash(key: str, *, caller: str | None) -> str:
    """Return a hash of a caller's idempotency key."""
    return sha256(canonical([caller, key]))


def body_hash(request: JudgeRequest, *, key: str) -> str:
    """Return a hash that shows whether two requests with one idempotency key are equal.

    The key is part of the hash, so that the request cannot be guessed without it.
    """
    return sha256(canonical([key, judged_content(request)]))
