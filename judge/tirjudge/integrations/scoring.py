"""Scoring code shared by all adapters: send completions to a server and return scores, or the reasons for missing
scores.

A completion has no score if the judge abstains, if the server is down or misses the deadline, or if the completion is
too long for the judge. A missing score is not a low score; each adapter reports it in the way of its host. An error in
the configuration, such as an unknown key or model, raises instead and ends the run early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from tirjudge.client import AsyncClient, RequestRefused, ServerUnavailable
from tirjudge.errors import DeadlineExceeded, TirjudgeError
from tirjudge.http.protocol import invalid, problem_of
from tirjudge.http.rewards import ResponseReward, RewardMode, RewardRequest
from tirjudge.integrations.detemplate import detemplate
from tirjudge.types import ChatMessage, Judgment

Prompt = str | Sequence[Mapping[str, Any]]
"""Prompt as given by hosts: a text or messages."""

Role = Literal["system", "user", "assistant", "tool"]

OF_THE_COMPLETION = ("context_length_exceeded", "body_too_large")
"""Error codes caused by one completion. All other errors affect every completion."""

MAX_ATTEMPTS = 1000
"""Maximum number of attempts per request. In practice, the deadline ends the retries."""


class NoVerdict(TirjudgeError):
    """A completion has no score. The message contains the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringSample:
    """A completion to score."""

    prompt: Prompt
    """The question: a text or messages."""
    response: str
    """The completion."""
    reference: str | None = None
    """A known good answer. None: no reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredSample:
    """Score of a completion."""

    score: float | None
    """Score from 0 to 1. None: no score."""
    reason: str | None = None
    """Reason for a missing score. None exactly if `score` is given."""
    num_tool_calls: int = 0
    """Number of tool calls of the judge."""
    judgment_ids: tuple[str, ...] = ()
    """Ids of the judgments behind the score."""

    def numbers(self, *, fallback: float) -> dict[str, float]:
        """Return the result as numbers with fixed keys, for hosts without missing values. `judge_failed` is 1 if the
        score is `fallback`."""
        return {
            "score": fallback if self.score is None else self.score,
            "judge_failed": float(self.score is None),
            "tool_calls": float(self.num_tool_calls),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """A server and the options of its requests. It can be pickled, and used from any process, thread or event loop."""

    url: str
    """URL of the server, such as `http://127.0.0.1:8400`."""
    api_key: str | None = field(default=None, repr=False)
    """API key. None: use `api_key_file`, or no key."""
    api_key_file: str | Path | None = None
    """File with the API key, for hosts that log their configuration. None: no file."""
    model: str | None = None
    """Name of the judge. None: the server's default."""
    tools: Literal["auto", "on", "off"] = "auto"
    """As in `JudgeRequest`."""
    votes: int = 1
    """As in `JudgeRequest`."""
    require: Literal["checked"] | None = None
    """As in `JudgeRequest`. A verdict that is not checked gives no score."""
    min_confidence: float | None = None
    """As in `JudgeRequest`. A verdict with less confidence gives no score."""
    rubric: str | None = None
    """Judging instructions as text. None: the judge chooses."""
    strategy: str | None = None
    """Strategy for comparing the completions of one prompt within one call. None: each completion is judged
    separately."""
    deadline_s: float = 120.0
    """Time limit per request (one completion, or all completions of one prompt), in seconds, including retries."""
    concurrency: int = 64
    """Maximum number of requests in flight."""

    def __post_init__(self) -> None:
        """Validate the options, so that a mistake ends the run before its first completion.

        Raises:
            RequestRefused: an option is invalid.
        """
        for name, value in (("concurrency", self.concurrency), ("deadline_s", self.deadline_s)):
            if not value > 0:
                raise RequestRefused(
                    invalid(f"{name}: {value} given; use more than 0", param=name, code="invalid_value")
                )
        try:
            self._request([ScoringSample(prompt="", response="")] * 2)
        except ValidationError as error:
            raise RequestRefused(problem_of(error, model=RewardRequest)) from error

    async def score(self, candidates: Sequence[ScoringSample]) -> list[ScoredSample]:
        """Score completions. Return one result per completion, in their order.

        After the server could not be reached, no further requests are sent, and the remaining completions have no
        score.

        Raises:
            RequestRefused: the server rejects the configuration, such as the key or the model.
        """
        groups = self._groups(candidates)
        slots = asyncio.Semaphore(self.concurrency)
        lost: list[str] = []
        async with self._client() as client:
            tasks = [
                asyncio.create_task(self._ask(client, [candidates[i] for i in group], slots=slots, lost=lost))
                for group in groups
            ]
            try:
                answers = await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        answered = zip(chain(*groups), chain(*answers), strict=True)
        return [scored for _, scored in sorted(answered, key=lambda pair: pair[0])]

    async def _ask(
        self, client: AsyncClient, group: Sequence[ScoringSample], *, slots: asyncio.Semaphore, lost: list[str]
    ) -> list[ScoredSample]:
        """Score one group with one request.

        Args:
            client: the client.
            group: the completions of the request.
            slots: limit of concurrent requests.
            lost: shared by all groups. Non-empty: the reason why the server could not be reached.
        """
        if self.strategy is not None and len(group) < 2:
            return _without("alone: the call has no other completion of this prompt to compare with", group)
        async with slots:
            if lost:
                return _without(lost[0], group)
            try:
                answer = await client.reward(self._request(group), deadline_s=self.deadline_s)
            except RequestRefused as error:
                if error.problem.code not in OF_THE_COMPLETION:
                    raise
                return _without(f"refused: {error}", group)
            except DeadlineExceeded as error:
                return _without(f"deadline: {error}", group)
            except ServerUnavailable as error:
                if error.problem is None:
                    lost.append(f"server: {error}")
                return _without(f"server: {error}", group)
        return [_scored(reward) for reward in answer.data[0].rewards]

    async def score_one(self, candidate: ScoringSample) -> ScoredSample:
        """Score one completion. See `score`."""
        return (await self.score([candidate]))[0]

    async def score_rendered(self, text: str, *, prompt: str, reference: str | None = None) -> ScoredSample:
        """Score a completion rendered with a chat template, including special tokens. See `score`.

        Args:
            text: the rendered prompt followed by the completion.
            prompt: the rendered prompt.
            reference: a known good answer. None: no reference.
        """
        exchange = detemplate(text, prompt=prompt)
        if exchange is None:
            return ScoredSample(score=None, reason="unreadable: the text does not separate prompt and answer")
        prompt_read = exchange.prompt if isinstance(exchange.prompt, str) else [dict(turn) for turn in exchange.prompt]
        return await self.score_one(ScoringSample(prompt=prompt_read, response=exchange.response, reference=reference))

    def _client(self) -> AsyncClient:
        key = self.api_key or key_in(self.api_key_file)
        return AsyncClient(
            self.url,
            api_key=key,
            timeout_s=self.deadline_s,
            max_attempts=MAX_ATTEMPTS,
            connect_retry_s=self.deadline_s,  # a trainer waits while its judge restarts
        )

    def _groups(self, candidates: Sequence[ScoringSample]) -> list[list[int]]:
        """Return the indexes of the candidates of each request."""
        if self.strategy is None:
            return [[place] for place in range(len(candidates))]
        groups: dict[str, list[int]] = {}
        for place, candidate in enumerate(candidates):
            groups.setdefault(repr((candidate.prompt, candidate.reference)), []).append(place)
        return list(groups.values())

    def _request(self, group: Sequence[ScoringSample]) -> RewardRequest:
        return RewardRequest(
            mode=RewardMode.EXPECTED_SCORE if self.strategy is None else RewardMode.COHORT,
            strategy=self.strategy or "circular",
            prompt=prompt_of(group[0].prompt),
            responses=[candidate.response for candidate in group],
            reference=group[0].reference,
            model=self.model,
            tools=self.tools,
            votes=self.votes,
            require=self.require,
            min_confidence=self.min_confidence,
            rubric=self.rubric,
        )


def _scored(reward: ResponseReward) -> ScoredSample:
    reason = None
    if reward.reward is None:
        reason = f"{reward.status}: {reward.reason if reward.error is None else reward.error.message}"
    return ScoredSample(
        score=reward.reward, reason=reason, num_tool_calls=reward.tool_calls, judgment_ids=tuple(reward.judgments)
    )


def _without(reason: str, group: Sequence[ScoringSample]) -> list[ScoredSample]:
    return [ScoredSample(score=None, reason=reason) for _ in group]


def key_in(path: str | Path | None) -> str | None:
    """Read the API key in a file; None without a file."""
    return None if path is None else Path(path).read_text(encoding="utf-8").strip()


def score_of(judgment: Judgment) -> float | None:
    """Return the score of the first response, scaled from 1..10 to 0..1; None if the judge abstains."""
    scores = judgment.verdict.scores
    return None if not scores or scores[0] is None else (scores[0] - 1) / 9


def prompt_of(prompt: Prompt) -> str | list[ChatMessage]:
    """Convert a prompt of a host to the prompt of a request."""
    if isinstance(prompt, str):
        return prompt
    return [ChatMessage(role=_ROLES.get(message["role"], "user"), content=text_of(message)) for message in prompt]


def response_of(completion: Prompt) -> str:
    """Return the answer in a completion: the text, or the text of the last assistant message."""
    if isinstance(completion, str):
        return completion
    written = [message for message in completion if message["role"] == "assistant"]
    return text_of(written[-1]) if written else ""


def text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message. Parts without text are replaced by their type in brackets."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text") or f"[{part.get('type', 'no text')}]" for part in content)


_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
