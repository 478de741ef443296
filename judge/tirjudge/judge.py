"""A request becomes a judgment: which orders, how many votes, which groups, and what they add up to."""

from __future__ import annotations

import asyncio
import hashlib
import struct
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from tirjudge.concurrency import gather_fail_fast, map_concurrently
from tirjudge.deadline import NEVER, Deadline, until
from tirjudge.engines.base import Engine
from tirjudge.errors import DeadlineExceeded
from tirjudge.formats import format_named
from tirjudge.formats.base import Format
from tirjudge.loop import RESERVED_TOKENS, RolloutSpec, run_rollout
from tirjudge.model import Model
from tirjudge.profile import Profile
from tirjudge.strategies.base import groups_of
from tirjudge.tools.base import Tool, ToolContext
from tirjudge.tools.python import PythonTool, Sandbox
from tirjudge.types import (
    JudgeRequest,
    Judgment,
    Mode,
    Rollout,
    RolloutRecord,
    Sampling,
    Timing,
    Turn,
    TurnRecord,
    Usage,
    Verdict,
    prompt_text,
)
from tirjudge.verdict import (
    Vote,
    bye,
    chosen,
    pointwise_verdict,
    preference_verdict,
    rollout_verdict,
    votes_still_needed,
)
from tirjudge.weights_lock import WeightsLock

MIN_SHOWN_CHARS = 16
"""Texts are not elided further than this to fit a prompt into a context."""

MAX_ROLLOUTS = 16
"""Most rollouts of one request under way at a time, so that a large one leaves room for the others."""

OnTurn = Callable[[Sequence[int], TurnRecord], Awaitable[None]]
"""Told of each turn as it ends: the order that its rollout was shown, and the turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A model, the tools that it may call, and the sizes that belong to the model."""

    engine: Engine
    tools: Sequence[Tool] = ()
    """That the model may call; none: only requests with `tools="off"` are taken."""
    profile: Profile = field(default_factory=Profile)
    weights: WeightsLock = field(default_factory=WeightsLock, compare=False, repr=False)
    """Every judgment, and every single rollout, is made inside of it, so that none is made by two versions of the weights."""

    model: Model | None = field(default=None, compare=False, repr=False)
    """What it was opened from; None: it was put together by hand."""

    @property
    def sandbox(self) -> Sandbox | None:
        """Where its programs run; None: it runs none."""
        return next((tool.sandbox for tool in self.tools if isinstance(tool, PythonTool)), None)

    @property
    def format(self) -> Format:
        """How requests are shown and answers are read."""
        return format_named(self.profile.format)

    async def judge(
        self, request: JudgeRequest, *, on_turn: OnTurn | None = None, deadline: Deadline | None = None
    ) -> Judgment:
        """Judge one request.

        Args:
            request: what to judge.
            on_turn: told of each turn as it ends.
            deadline: when the judgment must be there; None: `request.deadline_s` from now.

        Raises:
            ValueError: the request asks for tools and this judge has none.
            PromptTooLong: the request does not fit the model's context.
            DeadlineExceeded: the time was up before the model had written or decided anything. If it had, but no
                verdict could be forced in time, the judgment abstains with reason `deadline`.
            EngineUnavailable, SandboxUnavailable: the judgment could not be made; nothing is decided.
        """
        if not self.tools and request.offers_tools:
            raise ValueError(f'tools: "{request.tools}" given, but this judge has no tools; send "off"')
        started = time.perf_counter()
        deadline = deadline or Deadline.after(request.deadline_s)
        session = _Session(judge=self, request=request, on_turn=on_turn, deadline=deadline)
        verdict = await until(deadline.gives_up_at, session.decide_inside())
        votes = [vote for ballot in session.ballots.values() for vote in ballot]
        if verdict is None or (
            votes and all((vote.rollout.label is None and not vote.rollout.turns) for vote in votes)
        ):
            raise DeadlineExceeded("the time for this judgment was up before the model had written anything")
        return Judgment(
            id=session.id,
            created=int(time.time()),
            mode=request.mode,
            model=self.profile.name,
            model_version=session.model_version,
            verdict=verdict,
            rollouts=[_record(vote, mode=request.mode) for vote in votes],
            usage=_usage(votes),
            timing=_timing(votes, total_s=time.perf_counter() - started),
        )

    async def rollout(
        self,
        request: JudgeRequest,
        *,
        order: Sequence[int],
        session: str,
        number: int = 0,
        read_probabilities: bool = True,
        deadline: Deadline = NEVER,
        on_turn: Callable[[Turn], Awaitable[None]] | None = None,
    ) -> Rollout:
        """One rollout on the responses in `order`: what each vote of a judgment is, token for token, and the
        log-probability of each token besides.

        Args:
            request: what to judge.
            order: indexes of the responses to show, in this order; one for pointwise.
            session: unique to this rollout.
            number: which of the rollouts on this order it is; each has a seed of its own.
            read_probabilities: as in `RolloutSpec`.
            deadline, on_turn: as in `RolloutSpec`.

        Raises:
            PromptTooLong, EngineUnavailable, SandboxUnavailable: as in `run_rollout`.
        """
        async with self.weights.enter():
            return await self._roll(
                request,
                prompt_ids=await self.encode(request, order=order),
                order=order,
                session=session,
                number=number,
                logprobs=True,
                read_probabilities=read_probabilities,
                deadline=deadline,
                on_turn=on_turn,
            )

    async def _roll(
        self,
        request: JudgeRequest,
        *,
        prompt_ids: Sequence[int],
        order: Sequence[int],
        session: str,
        number: int,
        logprobs: bool,
        read_probabilities: bool,
        deadline: Deadline,
        on_turn: Callable[[Turn], Awaitable[None]] | None,
    ) -> Rollout:
        temperature = request.temperature
        if temperature is None:
            temperature = 0.0 if request.votes == 1 else self.profile.vote_temperature
        seed = _seed(request.seed, prompt_ids, rollout_name(order, number))
        spec = RolloutSpec(
            mode=request.mode,
            labels=self.format.labels(request.mode, len(order)),
            format=self.format,
            engine=self.engine,
            tools=self.tools if request.offers_tools else (),
            context=ToolContext(bindings=self.format.bindings(request, order=order)),
            profile=self.profile,
            sampling=Sampling(max_tokens=0, temperature=temperature, seed=seed, logprobs=logprobs),
            session=session,
            max_tool_calls=request.max_tool_calls,
            force_verdict=request.force_verdict,
            read_probabilities=read_probabilities,
            deadline=deadline,
            on_turn=on_turn,
        )
        return await run_rollout(prompt_ids, spec)

    async def encode(self, request: JudgeRequest, *, order: Sequence[int]) -> list[int]:
        """The prompt that shows the responses in `order`, as ids; less of each text is shown until the context is enough."""
        profile = self.profile
        prompt_chars = profile.prompt_chars
        response_chars = min(profile.response_chars, profile.all_responses_chars // len(order))
        while True:
            ids = await self.encode_shown(
                request, order=order, prompt_chars=prompt_chars, response_chars=response_chars
            )
            if len(ids) <= self.room or max(prompt_chars, response_chars) < MIN_SHOWN_CHARS:
                return ids
            prompt_chars, response_chars = -(-prompt_chars // 2), -(-response_chars // 2)

    @property
    def room(self) -> int:
        """Tokens for a prompt that leave the answer what it needs, or half the context if that is less."""
        profile = self.profile
        return profile.context_tokens - min(profile.rollout_tokens, profile.context_tokens // 2) - RESERVED_TOKENS

    async def encode_shown(
        self, request: JudgeRequest, *, order: Sequence[int], prompt_chars: int, response_chars: int
    ) -> list[int]:
        """The prompt with no more than so many characters of the question, and of each response."""
        text = self.format.render(
            request,
            order=order,
            tools=self.tools if request.offers_tools else (),
            prompt_chars=prompt_chars,
            response_chars=response_chars,
            control_tokens=await self.engine.tokenizer.control_tokens(),
        )
        return await self.engine.tokenizer.encode_prompt(text)


def rollout_name(order: Sequence[int], number: int) -> str:
    """What tells the rollouts of one request apart."""
    return ".".join(map(str, (*order, number)))


@dataclass(slots=True, kw_only=True)
class _Session:
    """One request under way."""

    judge: Judge
    request: JudgeRequest
    on_turn: OnTurn | None
    deadline: Deadline
    id: str = field(default_factory=lambda: f"jdg_{uuid.uuid4().hex}")
    ballots: dict[tuple[int, ...], list[Vote]] = field(default_factory=dict)
    """Order shown -> votes cast on it, in the order in which voting began."""
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_ROLLOUTS))
    model_version: str | None = None
    """Of the weights that decide; known once it has begun."""

    async def decide_inside(self) -> Verdict:
        """The verdict, by one version of the weights."""
        async with self.judge.weights.enter() as self.model_version:
            return await self.decide()

    async def decide(self) -> Verdict:
        """The verdict over all responses."""
        num_responses = len(self.request.responses)
        if self.request.mode is Mode.POINTWISE:
            works = (self._vote((index,)) for index in range(num_responses))
            ballots = await map_concurrently(works, num_at_once=min(num_responses, MAX_ROLLOUTS))
            return pointwise_verdict([vote for ballot in ballots for vote in ballot], num_responses=num_responses)
        order = content_order(self.request)
        return await self._best_of(order, size=await self._group_size())

    async def _best_of(self, order: tuple[int, ...], *, size: int) -> Verdict:
        """The verdict over the responses in `order`. More than fit one prompt are judged in groups whose winners meet.

        P(i is best) = P(i is best of its group) x P(the winner of its group is best of the winners); they sum to 1.
        """
        if len(order) <= size:
            return await self._compare(order)
        groups = groups_of(order, size=size)
        verdicts = await gather_fail_fast([self._compare(tuple(group)) for group in groups])
        for verdict in verdicts:
            if verdict.status == "abstained":
                return verdict
        winners = [_winner(verdict, group=group) for verdict, group in zip(verdicts, groups, strict=True)]
        final = await self._best_of(tuple(winners), size=size)
        return final if final.status == "abstained" else _combined(verdicts, winners=winners, final=final)

    async def _compare(self, order: tuple[int, ...]) -> Verdict:
        """The verdict of one prompt over the responses in `order`, shown in one or both orders."""
        num_responses = len(self.request.responses)
        if len(order) == 1:
            return bye(order[0], num_responses=num_responses)
        orders = [order, order[::-1]] if self.request.orders == "both" else [order]
        ballots = await gather_fail_fast([self._vote(shown) for shown in orders])
        votes = [vote for ballot in ballots for vote in ballot]
        return preference_verdict(votes, num_responses=num_responses)

    async def _vote(self, order: tuple[int, ...]) -> list[Vote]:
        """Votes on one order, cast in the fewest waves that can decide it. Scores are averaged, so all are cast."""
        ballot = self.ballots.setdefault(order, [])
        prompt_ids = await self.judge.encode(self.request, order=order)
        num_votes = self.request.votes
        while True:
            if self.request.mode is Mode.POINTWISE:
                num_needed = num_votes - len(ballot)
            else:
                num_needed = votes_still_needed([chosen(vote) for vote in ballot], num_votes=num_votes)
            if num_needed == 0 or (ballot and self.deadline.is_near):
                return ballot
            numbers = range(len(ballot), len(ballot) + num_needed)
            ballot += await gather_fail_fast([self._cast(order, prompt_ids, number=number) for number in numbers])

    async def _cast(self, order: tuple[int, ...], prompt_ids: Sequence[int], *, number: int) -> Vote:
        """One rollout."""
        async with self.places:
            rollout = await self.judge._roll(
                self.request,
                prompt_ids=prompt_ids,
                order=order,
                session=f"{self.id}.{rollout_name(order, number)}",
                number=number,
                logprobs=False,
                read_probabilities=True,
                deadline=self.deadline,
                on_turn=self._observer(order),
            )
        return Vote(order=order, rollout=rollout, needs_program=self.request.tools == "on")

    def _observer(self, order: tuple[int, ...]) -> Callable[[Turn], Awaitable[None]] | None:
        on_turn = self.on_turn
        if on_turn is None:
            return None

        async def tell(turn: Turn) -> None:
            await on_turn(order, turn.record)

        return tell

    async def _group_size(self) -> int:
        """How many responses one prompt can show at the length that the profile wants."""
        responses, profile = self.request.responses, self.judge.profile
        size = min(len(responses), profile.group_size)
        longest = sorted(range(len(responses)), key=lambda index: -len(responses[index]))
        while size > 2:
            response_chars = min(profile.response_chars, profile.all_responses_chars // size)
            shown = await self.judge.encode_shown(
                self.request,
                order=longest[:size],
                prompt_chars=profile.prompt_chars,
                response_chars=response_chars,
            )
            if len(shown) <= self.judge.room:
                break
            size = max(2, size * 2 // 3)
        return size


def _winner(verdict: Verdict, *, group: Sequence[int]) -> int:
    """Who goes on from a group: its best; after a tie the likeliest, or the first if the model does not tell."""
    if verdict.best is not None:
        return verdict.best
    chances = verdict.probabilities
    return group[0] if chances is None else max(range(len(chances)), key=lambda index: chances[index])


def _combined(verdicts: Sequence[Verdict], *, winners: Sequence[int], final: Verdict) -> Verdict:
    """The verdict of the winners' meeting, with the probabilities of everybody, if the model told all of them."""
    forced = any(verdict.forced for verdict in (*verdicts, final))
    met = final.probabilities
    chances = [verdict.probabilities for verdict in verdicts if verdict.probabilities is not None]
    if met is None or len(chances) < len(verdicts):
        untold = dict.fromkeys(("probabilities", "label_mass", "confidence"))
        return final.model_copy(update={**untold, "forced": forced})
    probabilities = [
        sum(met[winner] * p for winner, p in zip(winners, column, strict=True)) for column in zip(*chances, strict=True)
    ]
    mass = fmean(verdict.label_mass for verdict in (*verdicts, final) if verdict.label_mass is not None)
    top = max(probabilities) if final.best is None else probabilities[final.best]
    return final.model_copy(
        update={
            "probabilities": probabilities,
            "label_mass": mass,
            "confidence": top * mass,
            "forced": forced,
        }
    )


def content_order(request: JudgeRequest) -> tuple[int, ...]:
    """One random order that depends on what is judged, not on the order in which it was sent (TIR-Judge, App. A).

    The same responses to the same prompt are shown in the same order on every machine, however the caller listed them.
    """
    begun = hashlib.sha256(f"{request.seed}\0{prompt_text(request.prompt)}\0".encode())

    def key(index: int) -> tuple[bytes, int]:
        digest = begun.copy()
        digest.update(request.responses[index].encode())
        return digest.digest(), index

    return tuple(sorted(range(len(request.responses)), key=key))


def _seed(seed: int, prompt_ids: Sequence[int], name: str) -> int:
    """Another for each item, order and vote; the same for the same."""
    content = hashlib.sha256(f"{seed}/{name}/".encode() + struct.pack(f">{len(prompt_ids)}I", *prompt_ids))
    return int.from_bytes(content.digest()[:7], "big")


def _record(vote: Vote, *, mode: Mode) -> RolloutRecord:
    return RolloutRecord(
        order=list(vote.order),
        turns=[turn.record for turn in vote.rollout.turns],
        stop_reason=vote.rollout.stop_reason,
        verdict=rollout_verdict(vote, mode=mode),
    )


def _usage(votes: Sequence[Vote]) -> Usage:
    turns = [turn for vote in votes for turn in vote.rollout.turns]
    completions = [completion for vote in votes for completion in vote.rollout.completions]
    counted = [completion.counted for completion in completions if completion.counted is not None]
    if counted:
        num_input, num_output = sum(tokens.prompt for tokens in counted), sum(tokens.completion for tokens in counted)
    else:
        num_input = sum(len(vote.rollout.prompt_ids) for vote in votes)
        num_output = sum(len(completion.token_ids) for completion in completions)
    return Usage(
        input_tokens=num_input,
        cached_tokens=sum(completion.num_cached for completion in completions),
        output_tokens=num_output,
        tool_calls=sum(turn.result is not None for turn in turns),
        rollouts=len(votes),
    )


def _timing(votes: Sequence[Vote], *, total_s: float) -> Timing:
    turns = [turn for vote in votes for turn in vote.rollout.turns]
    return Timing(
        total_s=total_s,
        engine_s=sum(turn.engine_s for turn in turns),
        sandbox_s=sum(turn.result.wall_s for turn in turns if turn.result is not None),
    )
