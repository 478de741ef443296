"""What all adapters do: a completion goes to a server, and comes back with a score, or with the reason why it has none.

A completion has no score when the judge abstains, when the server is down or late, and when it is too long for the judge.
None of that is a low score, and it is left to the adapter to say so in the words of its host. A mistake in the set-up (a
key or a model that the server does not know) is none of these: it raises, and ends a run before it has cost anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from tirjudge.client import AsyncClient, RequestRefused, ServerUnavailable
from tirjudge.errors import DeadlineExceeded, TirjudgeError
from tirjudge.http.rewards import ResponseReward, RewardMode, RewardRequest
from tirjudge.integrations.detemplate import detemplate
from tirjudge.types import ChatMessage, Judgment

Prompt = str | Sequence[Mapping[str, Any]]
"""As hosts give it: text, or messages."""

Role = Literal["system", "user", "assistant", "tool"]

OF_THE_COMPLETION = ("context_length_exceeded", "body_too_large")
"""Refusals that are about one completion; all others would meet every completion alike."""

MAX_ATTEMPTS = 1000
"""Until the deadline ends them."""


class NoVerdict(TirjudgeError):
    """There is no score for a completion; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringSample:
    """A completion to be scored."""

    prompt: Prompt
    response: str
    reference: str | None = None
    """An answer known to be good; None: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredSample:
    """What came of it."""

    score: float | None
    """From 0 to 1; None: there is no verdict."""
    reason: str | None = None
    """Why there is none; None exactly if there is one."""
    num_tool_calls: int = 0
    judgment_ids: tuple[str, ...] = ()
    """Under which the server keeps what it rests on."""

    def numbers(self, *, fallback: float) -> dict[str, float]:
        """For hosts that know numbers alone: the same keys for every completion, and a flag where `fallback` stands in."""
        return {
            "score": fallback if self.score is None else self.score,
            "judge_failed": float(self.score is None),
            "tool_calls": float(self.num_tool_calls),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """A server, and how it is asked. It can be pickled, and used from any process, thread or event loop."""

    url: str
    """Such as `http://127.0.0.1:8400`."""
    api_key: str | None = field(default=None, repr=False)
    """One of the server's keys; None: it asks for none."""
    api_key_file: str | Path | None = None
    """Where the key is, for hosts that log what they are configured with."""
    model: str | None = None
    """The judge to use; None: the server's default."""
    tools: Literal["auto", "on", "off"] = "auto"
    votes: int = 1
    rubric: str | None = None
    """How to judge, in words; None leaves it to the judge."""
    strategy: str | None = None
    """How completions of one prompt that come together are set against each other; None: each is judged by itself."""
    deadline_s: float = 120.0
    """For each completion, or all those of one prompt, from when they are sent, retries included."""
    concurrency: int = 64
    """Requests under way at a time."""

    async def score(self, candidates: Sequence[ScoringSample]) -> list[ScoredSample]:
        """One `ScoredSample` a candidate, in their order. A server that cannot be reached is not asked for the rest of them.

        Raises:
            RequestRefused: the set-up is at fault.
        """
        groups = self._groups(candidates)
        places = asyncio.Semaphore(self.concurrency)
        lost: list[str] = []
        async with self._client() as client:
            tasks = [
                asyncio.create_task(self._ask(client, [candidates[i] for i in group], places=places, lost=lost))
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
        self, client: AsyncClient, group: Sequence[ScoringSample], *, places: asyncio.Semaphore, lost: list[str]
    ) -> list[ScoredSample]:
        """What one request brings. `lost` says why the server is not asked any more."""
        if self.strategy is not None and len(group) < 2:
            return _without("alone: it has no other completion of its prompt to be compared with", group)
        async with places:
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
        """The same for one."""
        return (await self.score([candidate]))[0]

    async def score_rendered(self, text: str, *, prompt: str, reference: str | None = None) -> ScoredSample:
        """The same for a prompt and its completion as a chat template rendered them, special tokens and all.

        Args:
            text: both.
            prompt: the prompt alone.
            reference: an answer known to be good; None: there is none.
        """
        exchange = detemplate(text, prompt=prompt)
        if exchange is None:
            return ScoredSample(score=None, reason="unreadable: prompt and answer cannot be told apart in it")
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
        """Which candidates are asked for together."""
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
    """The key that a file holds; None without one."""
    return None if path is None else Path(path).read_text(encoding="utf-8").strip()


def score_of(judgment: Judgment) -> float | None:
    """The score of the first response, from 0 to 1 instead of from 1 to 10; None if the judge abstains."""
    scores = judgment.verdict.scores
    return None if not scores or scores[0] is None else (scores[0] - 1) / 9


def prompt_of(prompt: Prompt) -> str | list[ChatMessage]:
    """A prompt in the forms that hosts have as the one that a request has."""
    if isinstance(prompt, str):
        return prompt
    return [ChatMessage(role=_ROLES.get(message["role"], "user"), content=text_of(message)) for message in prompt]


def response_of(completion: Prompt) -> str:
    """The answer in a completion: the text, or the last message that the model wrote."""
    if isinstance(completion, str):
        return completion
    written = [message for message in completion if message["role"] == "assistant"]
    return text_of(written[-1]) if written else ""


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message; of what is no text in it, only that it is there."""
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
