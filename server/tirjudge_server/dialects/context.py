"""What a dialect has at hand while it answers one request: its options, the judge, and what to say where there is no score.

Clients of a dialect cannot send fields of ours, but they all take a URL. So its query says how to judge:
`http://host:8400/get_reward?mode=pointwise&tools=on&fallback=0.5`. An option that does not exist is an error that names it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Request, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError

from tirjudge.http.protocol import invalid, parse_json, problem_of
from tirjudge.http.rewards import JudgingOptions, RewardMode, Strategy
from tirjudge.integrations.detemplate import ResponseView
from tirjudge.types import ChatMessage, Number, Received, Text
from tirjudge_server.call import Priority, call_of
from tirjudge_server.cost import Cost, CostLimits, group_cost
from tirjudge_server.failure import FAILURES, FailureStyle, Fallbacks, MissingScore, is_patient
from tirjudge_server.request_batch import RequestBatch
from tirjudge_server.rewards import MAX_BODY_BYTES, answer_headers
from tirjudge_server.scoring import ResponseGroup, ResponseScore, Scoring, absent, only_failures, score_groups
from tirjudge_server.service import JudgeService
from tirjudge_web.body import parse_body, read_body
from tirjudge_web.connection import while_connected
from tirjudge_web.errors import Refused

TOO_COSTLY = absent(
    MissingScore.TOO_COSTLY,
    reason="its request asks for more work than one may; send fewer samples, or ask for fewer votes",
)
"""The reward of a sample that costs more than its share of the request."""

_NO_TEXT = re.compile(r"-?\d|true$|false$|null$|\[|\{")


class ForeignRequest(Received):
    """A body in a format of somebody else's, who may add fields at any time."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def one_of(*names: str) -> dict[str, JsonValue]:
    """That at least one of some fields must be given, in the words of JSON Schema."""
    return {"anyOf": [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names]}


def _pair(value: Any) -> Any:
    """`0,5` in a query is a pair."""
    return [float(part) for part in value.split(",")] if isinstance(value, str) and "," in value else value


class DialectOptions(JudgingOptions):
    """What a query may say."""

    mode: RewardMode | None = None
    """None: as the server was started."""
    strategy: Strategy | None = None
    """The same."""
    scale: Annotated[tuple[Number, Number] | None, BeforeValidator(_pair)] = None
    """The same; `0,5` are the worst and the best reward."""
    fallback: Annotated[Number | None, Field(description="Stands in for a score that is missing.")] = None
    """The same."""
    response_view: ResponseView | None = None
    """The same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectSettings:
    """What all dialects of a server have in common."""

    scoring: Scoring = field(default_factory=Scoring)
    """How responses become rewards, where the query says nothing."""
    fallback: float | None = None
    """What stands in for a score that is missing, where the protocol needs a number; None: the middle of the scale."""
    response_view: ResponseView = "final"
    """Whether the judge sees the reasoning before an answer."""
    patience_s: float = 30.0
    """How long a full queue or a broken engine is waited for, where the client would not ask again by itself."""
    cohort_size: int = 1
    """NeMo Gym's `/verify`: how many rollouts of one prompt are compared; 1 judges each by itself."""
    cohort_wait_s: float = 1500.0
    """How long the first of them waits for the last."""
    max_body_bytes: int = MAX_BODY_BYTES
    """The largest request that is read."""
    fallbacks: Fallbacks = field(default_factory=Fallbacks)
    """Counts the scores that are missing."""


class DialectContext:
    """One request of a dialect.

    Attributes:
        dialect: its row in the failure table.
        scoring: by the server's settings and the request's query.
        view: of responses that come with their reasoning.
        inquiry: asks the judge.
        rewards: that were given so far.
    """

    def __init__(
        self, *, dialect: str, settings: DialectSettings, options: DialectOptions, inquiry: RequestBatch
    ) -> None:
        usual = settings.scoring
        self.dialect = dialect
        self.scoring = Scoring(
            mode=options.mode or usual.mode,
            strategy=options.strategy or usual.strategy,
            scale=usual.scale if options.scale is None else (float(options.scale[0]), float(options.scale[1])),
            judging={**usual.judging, **options.judging},
        )
        fallback = settings.fallback if options.fallback is None else float(options.fallback)
        self.fallback = self.scoring.middle if fallback is None else fallback
        self.view: ResponseView = options.response_view or settings.response_view
        self.inquiry = inquiry
        self.settings = settings
        self.rewards: list[ResponseScore] = []

    @property
    def model(self) -> str:
        """Name of the judge."""
        return self.inquiry.service.judge.profile.name

    @property
    def cost_limits(self) -> CostLimits:
        """Of one request."""
        return self.inquiry.service.cost_limits

    def cost_of(self, group: ResponseGroup | ResponseScore | None, *, scoring: Scoring) -> Cost:
        """The cost of the rewards of one group; nothing where there is none to judge."""
        if not isinstance(group, ResponseGroup):
            return Cost()
        return group_cost(group, scoring=scoring, group_size=self.inquiry.service.judge.profile.group_size)

    def affordable(self, costs: Sequence[Cost]) -> list[bool]:
        """Which samples of the request are judged, by what each costs.

        Raises:
            Refused: 413, the request costs too much, and this dialect says so by HTTP; or it has more samples than one
                request has rollouts.
        """
        self.check_samples(len(costs))
        if self.says(MissingScore.TOO_COSTLY) is FailureStyle.ERROR:
            self.cost_limits.check(sum(costs, Cost()))
        return self.cost_limits.affordable(costs)

    def check_samples(self, num_samples: int) -> None:
        """
        Raises:
            Refused: 413, there are more than one request has rollouts, so that none could be judged.
        """
        self.cost_limits.check(Cost(rollouts=num_samples))

    async def score(
        self, groups: Sequence[ResponseGroup | ResponseScore | None], *, scoring: Scoring | None = None
    ) -> list[list[ResponseScore]]:
        """The rewards of each group, logged and counted where there are none.

        Raises:
            Refused: the judge takes no such request.
            QueueFull, EngineUnavailable, ...: nothing could be judged, and this dialect says so by HTTP.
        """
        scoring = scoring or self.scoring
        affordable = self.affordable([self.cost_of(group, scoring=scoring) for group in groups])
        judged = [group if may_be else None for group, may_be in zip(groups, affordable, strict=True)]
        results = await score_groups(judged, scoring=scoring, ask=self.inquiry.ask)
        results = [
            found if may_be else [TOO_COSTLY] * (len(group.responses) if isinstance(group, ResponseGroup) else 1)
            for found, group, may_be in zip(results, groups, affordable, strict=True)
        ]
        self.note([reward for group in results for reward in group])
        return results

    async def score_each(self, groups: Sequence[ResponseGroup | ResponseScore | None]) -> list[ResponseScore]:
        """One reward for each group of one response.

        Raises:
            Refused: the mode compares responses with one another, and there is one alone.
        """
        self.refuse_cohorts()
        return [group[0] for group in await self.score(groups)]

    def refuse_cohorts(self) -> None:
        """Raises:
        Refused: the mode is `cohort`.
        """
        if self.scoring.mode is RewardMode.COHORT:
            message = "mode: cohort given, but this protocol sends one response at a time; another mode would do"
            raise Refused(invalid(message, param="mode", code="invalid_value"))

    def note(self, rewards: Sequence[ResponseScore]) -> None:
        """Keep rewards for the headers; log and count those that are missing.

        Raises:
            QueueFull, EngineUnavailable, ...: they are all missing, and this dialect says so by HTTP.
        """
        error = only_failures(rewards)
        if error is not None and self.says(MissingScore.UNAVAILABLE) is FailureStyle.ERROR:
            raise error
        missing = Counter((reward.absence, reward.logged_reason) for reward in rewards if reward.absence is not None)
        for (absence, reason), num in missing.items():
            self.settings.fallbacks.add(self.dialect, absence, reason=reason, num=num)
        self.rewards += rewards

    def says(self, absence: MissingScore) -> FailureStyle:
        """How this dialect puts it."""
        return FAILURES[self.dialect][absence]

    def number(self, reward: ResponseScore) -> float:
        """The reward, or what stands in for it."""
        return self.fallback if reward.value is None else reward.value

    def usage(self) -> dict[str, int]:
        """In vLLM's words."""
        prompt, written = self.inquiry.input_tokens, self.inquiry.output_tokens
        return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}


Reply = Callable[[Any, DialectContext], Coroutine[Any, Any, Any]]
"""Turns a body into what is sent back, as JSON."""


async def attend(
    request: Request,
    model: type[BaseModel],
    reply: Reply,
    *,
    dialect: str,
    service: JudgeService,
    settings: DialectSettings,
    deadline_s: float | None,
    body: bytes | None = None,
) -> Response:
    """Read a request, answer it for as long as the client is there, and send that.

    Args:
        request: as it came.
        model: of its body.
        reply: turns the body into the answer.
        dialect: row of the failure table.
        service: judges.
        settings: of all dialects.
        deadline_s: below the client's own time-out; None: it has none.
        body: if it was read already.

    Raises:
        Refused: the body or the query is malformed, or the judge takes no such request.
    """
    options = options_of(request.query_params)
    if body is None:
        async with service.draining.limit():
            body = await read_body(request, max_bytes=settings.max_body_bytes)
    asked = parse_body(body, model)
    call = call_of(request, dialect=dialect.partition("?")[0], priority=Priority.REWARD, deadline_s=deadline_s)
    patience_s = settings.patience_s if is_patient(dialect) else 0.0
    inquiry = RequestBatch(service, call=call, patience_s=patience_s)
    desk = DialectContext(dialect=dialect, settings=settings, options=options, inquiry=inquiry)
    answer = await while_connected(request.receive, reply(asked, desk))
    headers = answer_headers(desk.rewards, judgment_ids=inquiry.judgment_ids)
    # In ASCII: what is echoed may hold half a surrogate pair.
    return Response(json.dumps(answer, allow_nan=False), headers=headers, media_type="application/json")


def options_of(query: Mapping[str, str], *, besides: Sequence[str] = ("reward_key", "method")) -> DialectOptions:
    """The options in a query.

    Args:
        query: of a URL.
        besides: names that dialects read themselves.

    Raises:
        Refused: there is no such option, or not with this value.
    """
    given = {name: value if name in ("rubric", "model") else _value(value) for name, value in query.items()}
    try:
        return DialectOptions.model_validate({name: value for name, value in given.items() if name not in besides})
    except ValidationError as error:
        raise Refused(problem_of(error, model=DialectOptions)) from error


def _value(text: str) -> Any:
    """`3`, `true` and `[...]` as JSON, everything else as text."""
    if not _NO_TEXT.match(text):
        return text
    try:
        return parse_json(text.encode())
    except (ValueError, RecursionError):
        return text


def text_of(value: Any) -> str | None:
    """A label or a state of any shape as text; None for nothing, and for the empty text that some send instead."""
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class ForeignMessage(ForeignRequest):
    """A message of a chat: content is text, or parts with text in them."""

    role: Text
    content: Text | list[dict[str, Any]] | None = None


def chat_message(message: ForeignMessage) -> ChatMessage:
    """The message in our own words; other kinds of parts than text are left out."""
    content = message.content
    if isinstance(content, list):
        content = "".join(part["text"] for part in content if isinstance(part.get("text"), str))
    roles: Mapping[str, Any] = {"developer": "system", "function": "tool", "model": "assistant"}
    role = roles.get(message.role, message.role)
    if role not in ("system", "user", "assistant", "tool"):
        role = "user"
    return ChatMessage(role=role, content=content or "")
