"""Judge a request: choose orders, votes and groups, run the rollouts, and combine them into a judgment."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import struct
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from tirjudge.basis import combined_basis
from tirjudge.checks import Checks, gated, require_stores, rules_verdict
from tirjudge.claims import claims_of
from tirjudge.concurrency import gather_fail_fast, gather_pair, map_concurrently
from tirjudge.deadline import NEVER, Deadline, until
from tirjudge.engines.base import Engine, RawScore
from tirjudge.errors import DeadlineExceeded, EvidenceRefused, RequestNotShown, TemplateFailed
from tirjudge.formats import format_named, shown_name
from tirjudge.formats.attached import store_lines
from tirjudge.formats.base import Format, response_names
from tirjudge.loop import RESERVED_TOKENS, RolloutSpec, run_rollout
from tirjudge.model import Model
from tirjudge.profile import Profile
from tirjudge.strategies.base import groups_of
from tirjudge.token_counts import counts_of
from tirjudge.tools.base import Tool, ToolContext
from tirjudge.tools.functions import STORES, CallAccount, ToolFunction, chosen_functions
from tirjudge.tools.python import PythonTool, Sandbox
from tirjudge.types import (
    CheckResult,
    JudgeRequest,
    Judgment,
    Mode,
    Rollout,
    RolloutRecord,
    Sampling,
    StoreCard,
    Timing,
    Turn,
    TurnRecord,
    Usage,
    Verdict,
    check_period,
    prompt_text,
)
from tirjudge.verdict import (
    Vote,
    bye,
    chosen,
    held_to,
    pointwise_verdict,
    preference_verdict,
    raw_verdict,
    rollout_verdict,
    votes_still_needed,
)
from tirjudge.weights_lock import WeightsLock

MIN_SHOWN_CHARS = 16
"""Minimum length, in characters, to which a text is shortened to fit the prompt into the context."""

MAX_ROLLOUTS = 16
"""Maximum number of concurrent rollouts of one request, so that a large request leaves capacity for others."""

MAX_NAMED_ROLES = 8
"""Maximum number of roles in the message about a conversation that a chat template refuses."""

OnTurn = Callable[[Sequence[int], TurnRecord], Awaitable[None]]
"""Callback for each finished turn. Arguments: the order shown in its rollout, and the turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A judge: a model, its profile, and the tools that it may call."""

    engine: Engine
    """Engine that generates the turns."""
    tools: Sequence[Tool] = ()
    """Tools that the model may call. Empty: only requests with `tools="off"` are accepted."""
    profile: Profile = field(default_factory=Profile)
    """Name, sizes and format of the model."""
    checks: Checks | None = None
    """Checks of the responses. Their gates change verdicts. None: no checks."""
    weights: WeightsLock = field(default_factory=WeightsLock, compare=False, repr=False)
    """Lock held by every judgment and every single rollout, so that each uses one version of the weights."""

    model: Model | None = field(default=None, compare=False, repr=False)
    """The opened model behind this judge. None: the judge was constructed directly from an engine."""

    @property
    def sandbox(self) -> Sandbox | None:
        """Sandbox of the Python tool. None: this judge has no Python tool."""
        return next((tool.sandbox for tool in self.tools if isinstance(tool, PythonTool)), None)

    @property
    def has_model(self) -> bool:
        """Whether a model judges. Otherwise the checks judge all requests."""
        return self.engine.facts.generates or self.engine.facts.scores

    def uses_rules(self, request: JudgeRequest) -> bool:
        """Whether the checks alone judge a request.

        Raises:
            ValueError: they are asked to, but this judge has none.
        """
        is_asked = request.mode is Mode.RULES or not self.has_model
        if is_asked and self.checks is None:
            raise ValueError('mode: "rules" given, but this judge has no checks; open it with checks (--checks FILE)')
        return is_asked

    def uses_raw_scores(self, request: JudgeRequest) -> bool:
        """Whether a scalar reward model judges a request.

        Raises:
            ValueError: it judges, but the request requires a program.
        """
        is_asked = self.engine.facts.scores and request.mode is not Mode.RULES
        if is_asked and request.tools == "on":
            raise ValueError('tools: "on" given, but a scalar reward model runs no programs; send "auto" or "off"')
        return is_asked

    @property
    def takes_evidence(self) -> bool:
        """Whether functions of programs or checks can query stores that come with a request."""
        is_asked = self.checks is not None and any(card.needs for card in self.checks.cards)
        return is_asked or any(function.name == STORES for function in self.functions)

    @property
    def functions(self) -> Sequence[ToolFunction]:
        """Functions that programs may call."""
        return next((tool.functions for tool in self.tools if isinstance(tool, PythonTool)), ())

    @property
    def function_versions(self) -> dict[str, str]:
        """Name -> version of the functions that programs may call, in the order of the prompt."""
        return {each.name: each.version for each in self.functions}

    @property
    def format(self) -> Format:
        """Format of the prompts and of the model's texts."""
        return format_named(self.profile.format)

    async def judge(
        self,
        request: JudgeRequest,
        *,
        on_turn: OnTurn | None = None,
        deadline: Deadline | None = None,
        account: CallAccount | None = None,
    ) -> Judgment:
        """Judge one request.

        Args:
            request: the request.
            on_turn: called with each turn when it ends. None: no callback.
            deadline: deadline of the judgment. None: `request.deadline_s` from now.
            account: account of the caller for function calls. None: only the budget of the judgment applies.

        Raises:
            ValueError: the request offers tools, but this judge has none; or it names a function that is not offered; or its
                mode is rules, but this judge has no checks; or it requires programs of a scalar reward model.
            RequestNotShown: the format cannot show the request.
            EvidenceRefused: the request does not attach a store that a check needs, the store cannot be read, is valid on no
                day, or has the name of a registered one.
            PromptTooLong: the request does not fit the model's context.
            DeadlineExceeded: the deadline passed before the model had written a turn. If the model had written a turn
                but no verdict could be forced in time, the judgment abstains with reason `deadline`.
            EngineUnavailable, SandboxUnavailable: the judgment could not be made.
        """
        by_rules, by_scores = self.uses_rules(request), self.uses_raw_scores(request)
        self.check_evidence(request)
        if self.checks is not None:
            require_stores(request, cards=self.checks.cards)
        if not by_rules and not by_scores:
            if not self.tools and request.offers_tools and self.format.traits.takes_tools:
                raise ValueError(f'tools: "{request.tools}" given, but this judge has no tools; send "off"')
            self.check_shown(request)
            self.tools_of(request)
        started = time.perf_counter()
        deadline = deadline or Deadline.after(request.deadline_s)
        session = _Session(
            judge=self, request=request, on_turn=on_turn, deadline=deadline, account=CallAccount(parent=account)
        )
        decide = (
            session.decide_by_rules
            if by_rules
            else session.decide_by_scores
            if by_scores
            else session.decide_with_checks
        )
        verdict = await until(deadline.gives_up_at, decide())
        votes = [vote for ballot in session.ballots.values() for vote in ballot]
        if verdict is None or (
            votes and all((vote.rollout.label is None and not vote.rollout.turns) for vote in votes)
        ):
            raise DeadlineExceeded("the deadline of this judgment passed before the model had written anything")
        records = [_record(vote, mode=request.mode) for vote in votes]
        stores, created = _stores(votes), int(time.time())
        day = datetime.datetime.fromtimestamp(created, tz=datetime.UTC).date()
        claims, conflicts = claims_of(records, request=request, stores=stores, day=day)
        return Judgment(
            id=session.id,
            created=created,
            mode=request.mode,
            model=self.profile.name,
            model_version=session.model_version,
            chat_template_kwargs=self.profile.chat_template_kwargs,
            verdict=held_to(request, verdict),
            rollouts=records,
            ran_candidate_in_process=any(turn.in_process for record in records for turn in record.turns),
            checks=session.results,
            raw_scores=[each.value for each in session.raw_scores] or None,
            claims=claims,
            conflicts=conflicts,
            stores=stores,
            usage=_usage(votes, raw_scores=session.raw_scores),
            timing=_timing(votes, total_s=time.perf_counter() - started, raw_scores_s=session.raw_scores_s),
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
        account: CallAccount | None = None,
    ) -> Rollout:
        """Run one rollout on the responses in `order`. It has the same tokens as the corresponding vote of a judgment,
        and also the log-probability of each token.

        Args:
            request: the request.
            order: indexes of the responses to show, in the order to show them; one index for pointwise.
            session: unique id of this rollout.
            number: index of this rollout among the rollouts on this order. Each number has a different seed.
            read_probabilities, deadline, on_turn: as in `RolloutSpec`.
            account: account for function calls. None: a new one.

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
                account=account or CallAccount(),
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
        account: CallAccount,
    ) -> Rollout:
        traits = self.format.traits
        temperature = request.temperature
        if temperature is None:
            own = traits.temperature or 0.0
            temperature = own if request.votes == 1 or own else self.profile.vote_temperature
        seed = _seed(request.seed, prompt_ids, rollout_name(order, number))
        spec = RolloutSpec(
            mode=request.mode,
            labels=self.format.labels(request.mode, len(order)),
            format=self.format,
            engine=self.engine,
            tools=self.tools_of(request),
            context=ToolContext(
                bindings=(bindings := self.format.bindings(request, order=order)),
                watched=response_names(bindings),
                candidate_code=request.candidate_code,
                account=account,
                request=request,
                responses=shown_responses(request, labels=self.format.labels(request.mode, len(order)), order=order),
            ),
            profile=self.profile,
            sampling=Sampling(
                max_tokens=0,
                temperature=temperature,
                top_p=traits.top_p if self.profile.top_p is None else self.profile.top_p,
                seed=seed,
                logprobs=logprobs,
            ),
            session=session,
            max_tool_calls=request.max_tool_calls,
            force_verdict=request.force_verdict,
            read_probabilities=read_probabilities,
            deadline=deadline,
            on_turn=on_turn,
        )
        return await run_rollout(prompt_ids, spec)

    def tools_of(self, request: JudgeRequest) -> Sequence[Tool]:
        """Return the tools that a request offers to the model, with the functions that it names.

        Raises:
            ValueError: the request names a function that is not offered.
        """
        if not request.offers_tools or not self.format.traits.takes_tools:
            return ()
        if request.functions is None:
            return self.tools
        chosen = chosen_functions(self.functions, names=request.functions)
        return [replace(tool, functions=chosen) if isinstance(tool, PythonTool) else tool for tool in self.tools]

    def check_evidence(self, request: JudgeRequest) -> None:
        """Check the stores that come with a request.

        Raises:
            EvidenceRefused: a store is valid on no day, or has the name of a registered one.
        """
        registered = {name for function in self.functions for name in function.stores}
        for store in request.evidence or ():
            try:
                check_period(valid_from=store.valid_from, valid_until=store.valid_until)
            except ValueError as error:
                raise EvidenceRefused(f"evidence: {store.name}: {error}") from None
            if store.name in registered:
                raise EvidenceRefused(f"evidence: {store.name}: a registered store has this name; give it another name")

    def check_shown(self, request: JudgeRequest) -> None:
        """Check that the format can show a request.

        Raises:
            RequestNotShown: it cannot. The message begins with the name of the field.
        """
        format = self.format
        if request.tools == "on" and not format.traits.takes_tools:
            raise RequestNotShown(
                f'tools: "on" given, but the format {shown_name(format.name)} has no tools; send "auto" or "off"'
            )
        refusal = format.traits.refusal(request)
        if refusal is not None:
            raise RequestNotShown(refusal)

    def _shown_tools(self, request: JudgeRequest) -> Sequence[Tool]:
        """Return the tools that the prompt presents."""
        tools = self.tools_of(request)
        if self.profile.presents_functions or not self.functions:
            return tools
        return [replace(tool, functions=()) if isinstance(tool, PythonTool) else tool for tool in tools]

    async def encode(self, request: JudgeRequest, *, order: Sequence[int]) -> list[int]:
        """Render and encode the prompt that shows the responses in `order`. Texts are shortened until the prompt fits.

        Returns:
            Token ids. They may exceed the context if even the shortest texts do not fit.
        """
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
        """Maximum tokens of a prompt. The answer keeps `rollout_tokens`, or half the context if that is less."""
        profile = self.profile
        return profile.context_tokens - min(profile.rollout_tokens, profile.context_tokens // 2) - RESERVED_TOKENS

    async def encode_shown(
        self, request: JudgeRequest, *, order: Sequence[int], prompt_chars: int, response_chars: int
    ) -> list[int]:
        """Render and encode the prompt with at most `prompt_chars` characters of the question and `response_chars` of
        each response."""
        prompt = self.format.render(
            request,
            order=order,
            tools=self._shown_tools(request),
            prompt_chars=prompt_chars,
            response_chars=response_chars,
            control_tokens=await self.engine.tokenizer.control_tokens(_untrusted_texts(request, order=order)),
        )
        try:
            return await self.engine.tokenizer.encode_prompt(prompt)
        except TemplateFailed as error:
            if isinstance(prompt, str):
                raise
            roles = ", ".join(message.role for message in prompt[:MAX_NAMED_ROLES])
            raise RequestNotShown(
                f"prompt: the chat template of the model refuses the conversation of the format "
                f"{shown_name(self.format.name)}, with the roles {roles}: {error}; use another format, or serve the model "
                "with a chat template that has these roles"
            ) from error


def _untrusted_texts(request: JudgeRequest, *, order: Sequence[int]) -> list[str]:
    """Return the texts of a request that a prompt with the responses in `order` shows."""
    criteria = [text for criterion in request.criteria or () for text in (criterion.name, criterion.text)]
    texts = [
        prompt_text(request.prompt),
        *(request.responses[index] for index in order),
        *store_lines(request.evidence or ()),
    ]
    return [*texts, *(text for text in (request.reference, request.rubric, *criteria) if text is not None)]


def shown_responses(request: JudgeRequest, *, labels: Sequence[str], order: Sequence[int]) -> dict[str, str]:
    """Return label -> text of the shown responses. The label of a response that is judged alone is the empty text."""
    if request.mode is Mode.POINTWISE:
        return {"": request.responses[order[0]]}
    return {label: request.responses[index] for label, index in zip(labels, order, strict=True)}


def rollout_name(order: Sequence[int], number: int) -> str:
    """Return an identifier of a rollout that is unique within its request."""
    return ".".join(map(str, (*order, number)))


@dataclass(slots=True, kw_only=True)
class _Session:
    """State of one request in progress."""

    judge: Judge
    request: JudgeRequest
    on_turn: OnTurn | None
    deadline: Deadline
    id: str = field(default_factory=lambda: f"jdg_{uuid.uuid4().hex}")
    ballots: dict[tuple[int, ...], list[Vote]] = field(default_factory=dict)
    """Order shown -> its votes."""
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_ROLLOUTS))
    """Limit of concurrent rollouts."""
    account: CallAccount = field(default_factory=CallAccount)
    """Account of the judgment for function calls."""
    model_version: str | None = None
    """Version of the weights; set when the weights lock is acquired."""
    results: list[list[CheckResult]] = field(default_factory=list)
    """Results of the checks, for each response."""
    raw_scores: list[RawScore] = field(default_factory=list)
    """Scores of a scalar reward model, for each response. Empty: another kind of judge."""
    raw_scores_s: float = 0.0
    """Time waiting for these scores, in seconds."""

    async def decide_by_scores(self) -> Verdict:
        """Return the verdict of a scalar reward model. Equal responses are scored once: in a batch, the last digits of their
        scores may differ."""
        engine, request = self.judge.engine, self.request
        distinct = list(dict.fromkeys(request.responses))
        works = (engine.score(request.prompt, response) for response in distinct)
        async with self.judge.weights.enter() as self.model_version:
            started = time.perf_counter()
            scores = await map_concurrently(works, num_at_once=min(len(distinct), MAX_ROLLOUTS))
            self.raw_scores_s = time.perf_counter() - started
        by_response = dict(zip(distinct, scores, strict=True))
        self.raw_scores = [by_response[response] for response in request.responses]
        return raw_verdict([each.value for each in self.raw_scores], mode=request.mode)

    async def decide_by_rules(self) -> Verdict:
        """Return the verdict of the checks alone."""
        checks = self.judge.checks
        assert checks is not None
        if not self.judge.has_model:
            self.model_version = self.judge.weights.version
        self.results = await checks.examine(self.request)
        return rules_verdict(mode=self.request.mode, cards=checks.cards, results=self.results)

    async def decide_with_checks(self) -> Verdict:
        """Return the verdict of the model over all responses, after the gates."""
        checks = self.judge.checks
        if checks is None:
            return await self.decide_with_weights()
        verdict, self.results = await gather_pair(self.decide_with_weights(), checks.examine(self.request))
        return gated(verdict, mode=self.request.mode, cards=checks.cards, results=self.results)

    async def decide_with_weights(self) -> Verdict:
        """Return the verdict over all responses, holding the weights lock."""
        async with self.judge.weights.enter() as self.model_version:
            return await self._decide()

    async def _decide(self) -> Verdict:
        num_responses = len(self.request.responses)
        if self.request.mode is Mode.POINTWISE:
            works = (self._vote((index,)) for index in range(num_responses))
            ballots = await map_concurrently(works, num_at_once=min(num_responses, MAX_ROLLOUTS))
            return pointwise_verdict([vote for ballot in ballots for vote in ballot], num_responses=num_responses)
        order = content_order(self.request)
        return await self._best_of(order, size=await self._group_size())

    async def _best_of(self, order: tuple[int, ...], *, size: int) -> Verdict:
        """Return the verdict over the responses in `order`. If they do not fit one prompt, judge groups, then their
        winners.

        P(i is best) = P(i is best of its group) x P(the winner of its group is best of the winners). The sum over i is
        1.
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
        """Return the verdict over responses that fit one prompt, shown in `order` and, if requested, in reverse."""
        num_responses = len(self.request.responses)
        if len(order) == 1:
            return bye(order[0], num_responses=num_responses)
        orders = [order, order[::-1]] if self.request.orders == "both" else [order]
        ballots = await gather_fail_fast([self._vote(shown) for shown in orders])
        votes = [vote for ballot in ballots for vote in ballot]
        return preference_verdict(votes, num_responses=num_responses)

    async def _vote(self, order: tuple[int, ...]) -> list[Vote]:
        """Collect the votes on one order, in as few concurrent waves as possible.

        Comparisons stop when the outcome is decided. Scores and points are averaged, so all votes are collected.
        """
        ballot = self.ballots.setdefault(order, [])
        prompt_ids = await self.judge.encode(self.request, order=order)
        num_votes = self.request.votes
        while True:
            adds_points = self.request.orders == "both" and any(vote.rollout.points is not None for vote in ballot)
            if self.request.mode is Mode.POINTWISE or adds_points:
                num_needed = num_votes - len(ballot)
            else:
                num_needed = votes_still_needed([chosen(vote) for vote in ballot], num_votes=num_votes)
            if num_needed == 0 or (ballot and self.deadline.is_near):
                return ballot
            numbers = range(len(ballot), len(ballot) + num_needed)
            ballot += await gather_fail_fast([self._cast(order, prompt_ids, number=number) for number in numbers])

    async def _cast(self, order: tuple[int, ...], prompt_ids: Sequence[int], *, number: int) -> Vote:
        """Run one rollout and return it as a vote."""
        async with self.slots:
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
                account=self.account,
            )
        return Vote(order=order, rollout=rollout, needs_program=self.request.tools == "on")

    def _observer(self, order: tuple[int, ...]) -> Callable[[Turn], Awaitable[None]] | None:
        on_turn = self.on_turn
        if on_turn is None:
            return None

        async def observe(turn: Turn) -> None:
            await on_turn(order, turn.record)

        return observe

    async def _group_size(self) -> int:
        """Return how many responses fit one prompt at the lengths of the profile."""
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
    """Return the best response of a group. After a tie: the most probable one, or the first without probabilities."""
    if verdict.best is not None:
        return verdict.best
    probabilities = verdict.probabilities
    return group[0] if probabilities is None else max(range(len(probabilities)), key=probabilities.__getitem__)


def _combined(verdicts: Sequence[Verdict], *, winners: Sequence[int], final: Verdict) -> Verdict:
    """Combine the verdicts of all groups with the verdict over their winners. Without probabilities from every group,
    the result has none."""
    forced = any(verdict.forced for verdict in (*verdicts, final))
    # A bye has no basis, because nothing was judged.
    basis = combined_basis(v.basis for v in (*verdicts, final) if v.basis is not None)
    of_winners = final.probabilities
    of_groups = [verdict.probabilities for verdict in verdicts if verdict.probabilities is not None]
    if of_winners is None or len(of_groups) < len(verdicts):
        unknown = dict.fromkeys(("probabilities", "label_mass", "confidence"))
        return final.model_copy(update={**unknown, "forced": forced, "basis": basis})
    probabilities = [
        sum(of_winners[winner] * p for winner, p in zip(winners, column, strict=True))
        for column in zip(*of_groups, strict=True)
    ]
    mass = fmean(verdict.label_mass for verdict in (*verdicts, final) if verdict.label_mass is not None)
    top = max(probabilities) if final.best is None else probabilities[final.best]
    return final.model_copy(
        update={
            "probabilities": probabilities,
            "label_mass": mass,
            "confidence": top * mass,
            "forced": forced,
            "basis": basis,
        }
    )


def content_order(request: JudgeRequest) -> tuple[int, ...]:
    """Return a pseudorandom order of the responses, derived from the seed and the texts (TIR-Judge, App. A).

    It does not depend on the order of the responses in the request, and is the same on every machine.
    """
    prefix = hashlib.sha256(f"{request.seed}\0{prompt_text(request.prompt)}\0".encode())

    def key(index: int) -> tuple[bytes, int]:
        digest = prefix.copy()
        digest.update(request.responses[index].encode())
        return digest.digest(), index

    return tuple(sorted(range(len(request.responses)), key=key))


def _seed(seed: int, prompt_ids: Sequence[int], name: str) -> int:
    """Derive the seed of a rollout from the request's seed, the prompt and the name of the rollout. Equal arguments
    give equal seeds."""
    content = hashlib.sha256(f"{seed}/{name}/".encode() + struct.pack(f">{len(prompt_ids)}I", *prompt_ids))
    return int.from_bytes(content.digest()[:7], "big")


def _record(vote: Vote, *, mode: Mode) -> RolloutRecord:
    return RolloutRecord(
        order=list(vote.order),
        turns=[turn.record for turn in vote.rollout.turns],
        stop_reason=vote.rollout.stop_reason,
        verdict=rollout_verdict(vote, mode=mode),
    )


def _stores(votes: Sequence[Vote]) -> list[StoreCard]:
    """Return the cards of the stores that the programs queried, without their contents."""
    programs = [program for vote in votes for turn in vote.rollout.turns if (program := turn.program) is not None]
    cards = {card.name: card for program in programs for card in program.stores}
    return [cards[name].model_copy(update={"lines": []}) for name in sorted(cards)]


def _usage(votes: Sequence[Vote], *, raw_scores: Sequence[RawScore]) -> Usage:
    if raw_scores:
        counts = [each.num_tokens for each in raw_scores]
        known = [count for count in counts if count is not None]
        num_tokens = sum(known) if len(known) == len(counts) else None
        return Usage(input_tokens=num_tokens, cached_tokens=None, output_tokens=0, tool_calls=0, rollouts=0)
    turns = [turn for vote in votes for turn in vote.rollout.turns]
    tokens = counts_of([vote.rollout for vote in votes])
    return Usage(
        input_tokens=tokens.prompt,
        cached_tokens=tokens.cached,
        output_tokens=tokens.completion,
        tool_calls=sum(turn.result is not None for turn in turns),
        rollouts=len(votes),
        function_calls=sum(len(program.calls) for turn in turns if (program := turn.program) is not None),
        cost_usd=tokens.cost_usd,
    )


def _timing(votes: Sequence[Vote], *, total_s: float, raw_scores_s: float) -> Timing:
    turns = [turn for vote in votes for turn in vote.rollout.turns]
    return Timing(
        total_s=total_s,
        engine_s=raw_scores_s + sum(turn.engine_s for turn in turns),
        sandbox_s=sum(turn.result.wall_s for turn in turns if turn.result is not None),
        functions_s=sum(call.ms for turn in turns if turn.program is not None for call in turn.program.calls) / 1000,
    )
