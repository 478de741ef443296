"""Judge held-out items, and record all requests and completions of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.vllm.server import BLOCK_TOKENS
from tirjudge.engines.base import BaseEngine, Engine, EngineFacts, Tokenizer
from tirjudge.judge import Judge
from tirjudge.model import bundled_checkpoint
from tirjudge.profile import load_profile
from tirjudge.tools.python import PythonTool, Sandbox
from tirjudge.types import Completion, JudgeRequest, Judgment, Mode, Sampling
from tirjudge_training.synthetic.examples import Mixture
from tirjudge_training.synthetic.items import generate_items

MODES = {Mode.PAIRWISE: 0.5, Mode.POINTWISE: 0.3, Mode.LISTWISE: 0.2}
"""Mode -> share of the items."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request to an engine, and its completion."""

    session: str
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    completion: Completion

    @property
    def is_turn(self) -> bool:
        """Whether the request generated a turn, rather than reading labels."""
        return self.sampling.allowed_token_ids is None


@dataclass(frozen=True, kw_only=True)
class Recorded(BaseEngine):
    """An engine that records its requests, in the order of their completion."""

    engine: Engine
    asked: list[Asked] = field(default_factory=list)

    @property
    def facts(self) -> EngineFacts:
        return self.engine.facts

    @property
    def tokenizer(self) -> Tokenizer:
        return self.engine.tokenizer

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return self.engine.eos_token_ids

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        completion = await self.engine.generate(token_ids, sampling=sampling, session=session)
        asked = Asked(session=session, prompt_ids=tuple(token_ids), sampling=sampling, completion=completion)
        self.asked.append(asked)
        return completion

    def rollouts(self) -> dict[str, list[Asked]]:
        """Return session -> requests."""
        found: dict[str, list[Asked]] = {}
        for asked in self.asked:
            found.setdefault(asked.session, []).append(asked)
        return found


def held_out_requests(count: int, *, seed: int = 11) -> list[JudgeRequest]:
    """Return greedy requests for items whose phrasings and words do not occur in training."""
    requests: list[JudgeRequest] = []
    for mode, share in MODES.items():
        items = generate_items(mode, count=round(count * share), seed=seed, mixture=Mixture(), held_out=True)
        requests += [item.request(seed=seed, temperature=0.0) for item in items]
    return requests


async def judge_all(
    requests: Sequence[JudgeRequest],
    *,
    engine: Engine,
    sandbox: Sandbox,
    concurrency: int,
    checkpoint: Path | None = None,
) -> list[Judgment]:
    """Judge all requests, `concurrency` at a time, and return the judgments in the order of the requests."""
    judge = Judge(engine=engine, tools=[PythonTool(sandbox)], profile=load_profile(checkpoint or bundled_checkpoint()))
    places = asyncio.Semaphore(concurrency)

    async def one(request: JudgeRequest) -> Judgment:
        async with places:
            return await judge.judge(request)

    return await asyncio.gather(*map(one, requests))


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixHits:
    """Hits in the prefix cache for tokens of earlier requests of the same rollout."""

    sent_again: int
    """Number of prompt tokens that an earlier request of the rollout had sent or received, in whole blocks of the cache."""
    found: int
    """Number of these tokens that were in the cache."""

    @property
    def share(self) -> float:
        return self.found / self.sent_again


def prefix_hits(recorded: Recorded) -> PrefixHits:
    """Count the hits over all requests except the first of each rollout, as reported by the server."""
    sent_again = found = 0
    for requests in recorded.rollouts().values():
        before: tuple[int, ...] = ()
        for asked in requests:
            known = common_prefix(before, asked.prompt_ids) // BLOCK_TOKENS * BLOCK_TOKENS
            sent_again += known
            found += min(known, asked.completion.num_cached)
            sequence = asked.prompt_ids + asked.completion.token_ids
            before = sequence if asked.is_turn else before
    return PrefixHits(sent_again=sent_again, found=found)


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Return the length of the common prefix."""
    return next((n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
