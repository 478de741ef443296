"""The fields of a stored judgment, and the judgment restored from them."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from importlib.metadata import version
from typing import Any

from tirjudge.judge import Judge
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_server.call import Call
from tirjudge_server.coalescing import NOT_JUDGED
from tirjudge_server.records.chain import record_hash
from tirjudge_server.records.sealing import Sealed, canonical, load, sha256

SETTINGS = frozenset(
    {"mode", "model", "tools", "orders", "votes", "max_tool_calls", "force_verdict", "temperature", "seed"}
)
"""Fields of a request that hold nothing anybody wrote; they are kept together, and not erased."""

ERASABLE = (
    "request.prompt",
    "request.responses",
    "request.reference",
    "request.criteria",
    "request.rubric",
    "turns",
    "caller",
    "request_id",
)
"""Fields that may be withheld or erased: what people wrote, what the model wrote about it, and who asked."""

KEPT = frozenset({"request", "rollouts", "judgment", "versions", "dialect"})
"""The other fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """What made the judgments of one server; another of these may judge otherwise."""

    model: str
    fingerprint: str | None
    """A hash of the model; None: it is out of sight."""
    profile_sha256: str
    prompts_sha256: str
    """Of the format."""
    format: str
    tools: list[str]
    """That the model may call, by name."""
    sandbox: str | None
    """The level of its isolation; None: there is no sandbox."""
    limits: dict[str, Any] | None
    """Of programs; None: they are out of sight."""
    package: str
    python: str


def versions_of(judge: Judge, *, fingerprint: str | None, isolation: str | None) -> Versions:
    """What `judge` is made of."""
    limits = getattr(judge.sandbox, "limits", None)
    return Versions(
        model=judge.profile.name,
        fingerprint=fingerprint,
        profile_sha256=sha256(canonical(judge.profile.as_first_written())),
        prompts_sha256=judge.format.sha256,
        format=judge.format.name,
        tools=[tool.name for tool in judge.tools],
        sandbox=isolation,
        limits=asdict(limits) if is_dataclass(limits) and not isinstance(limits, type) else None,
        package=version("tirjudge"),
        python=platform.python_version(),
    )


def fields_of(request: JudgeRequest, judgment: Judgment, *, call: Call, versions: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that is kept, as JSON values; texts apart from what is said of them, so that they can be erased alone."""
    asked = request.model_dump(mode="json")
    answered = judgment.model_dump(mode="json")
    rollouts = answered.pop("rollouts")
    fields = {f"request.{name}": value for name, value in asked.items() if name not in SETTINGS and value is not None}
    return fields | {
        "request": {name: asked[name] for name in asked if name in SETTINGS},
        "turns": [rollout.pop("turns") for rollout in rollouts],
        "rollouts": rollouts,
        "judgment": answered,
        "versions": versions,
        "caller": call.caller,
        "request_id": call.request_id,
        "dialect": call.dialect,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredJudgment:
    """A judgment as it is kept now."""

    seq: int
    """Its place in the chain."""
    id: str
    created_ms: int
    previous: str
    hash: str
    content: Sealed
    values: Mapping[str, Any]
    """Field -> JSON, of those that are not erased."""

    @property
    def request_fields(self) -> dict[str, Any]:
        """Of the request, what is left."""
        texts = {name.removeprefix("request."): v for name, v in self.values.items() if name.startswith("request.")}
        return self.values["request"] | texts

    @property
    def judgment(self) -> Judgment:
        """Without its turns if they are erased."""
        rollouts = self.values["rollouts"]
        turns = self.values.get("turns", [[] for _ in rollouts])
        merged = [rollout | {"turns": its} for rollout, its in zip(rollouts, turns, strict=True)]
        return Judgment.model_validate(self.values["judgment"] | {"rollouts": merged})

    @property
    def is_intact(self) -> bool:
        """Whether what is there now is what was stored, as far as the record itself can tell; `audit` looks at its place
        in the chain besides."""
        return self.hash == record_hash(self, kind="judgment", content=self.content)


def record_of(row: Any) -> StoredJudgment:
    """The record in a row of the table.

    Raises:
        ValueError: it is damaged beyond reading.
    """
    content = load(row.content)
    values = content.values
    if missing := KEPT - values.keys():
        raise ValueError(f"{min(missing)} is not there")
    copied = {name: getattr(row, name) for name in ("seq", "id", "created_ms", "previous", "hash")}
    return StoredJudgment(**copied, content=content, values=values)


def judged_content(request: JudgeRequest) -> dict[str, Any]:
    """What of a request decides its judgment."""
    return request.model_dump(mode="json", exclude_none=True, exclude=NOT_JUDGED)


def content_key(request: JudgeRequest, *, caller: str | None, versions: str) -> str:
    """The same for what must be judged the same. Callers do not share judgments, so that none learns what others asked."""
    return sha256(canonical([caller, judged_content(request), versions]))


def idempotency_hash(key: str, *, caller: str | None) -> str:
    return sha256(canonical([caller, key]))


def body_hash(request: JudgeRequest, *, key: str) -> str:
    """Tells whether a key came with the same request. Says nothing about the request to who does not know the key."""
    return sha256(canonical([key, judged_content(request)]))
