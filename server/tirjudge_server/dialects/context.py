"""What a dialect has at hand while it answers one request: its options, the judge, and the scores so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tirjudge.http.protocol import invalid
from tirjudge.http.rewards import RewardMode
from tirjudge.integrations.detemplate import ResponseView, detemplate
from tirjudge_server.cost import Cost, CostLimits, group_cost
from tirjudge_server.dialects.options import DialectOptions
from tirjudge_server.failure import FailureRow, FailureStyle, Fallbacks, MissingScore
from tirjudge_server.request_batch import RequestBatch
from tirjudge_server.rewards import MAX_BODY_BYTES
from tirjudge_server.scoring import (
    ResponseGroup,
    ResponseScore,
    Scoring,
    count_missing,
    no_score,
    only_failures,
    score_groups,
)
from tirjudge_web.errors import Refused

TOO_COSTLY = no_score(
    MissingScore.TOO_COSTLY,
    reason="its request asks for more work than one may; send fewer samples, or ask for fewer votes",
)
"""The reward of a sample that costs more than its share of the request."""


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
    """How long a full queue or a broken engine is waited for, where the client does not ask again by itself."""
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
        label: of its row in the failure table.
        failures: that row.
        path: of the request.
        options: of its query.
        state: what the dialect keeps between requests; None: nothing.
        scoring: by the server's settings and the options.
        view: of responses that come with their reasoning.
        batch: asks the judge.
        rewards: that were given so far.
    """

    def __init__(
        self,
        *,
        label: str,
        failures: FailureRow,
        path: str,
        options: DialectOptions,
        settings: DialectSettings,
        state: Any,
        batch: RequestBatch,
    ) -> None:
        usual = settings.scoring
        self.label = label
        self.failures = failures
        self.path = path
        self.options: Any = options
        self.state = state
        self.scoring = Scoring(
            mode=options.mode or usual.mode,
            strategy=options.strategy or usual.strategy,
            scale=usual.scale if options.scale is None else (float(options.scale[0]), float(options.scale[1])),
            judging={**usual.judging, **options.judging},
        )
        fallback = settings.fallback if options.fallback is None else float(options.fallback)
        self.fallback = self.scoring.middle if fallback is None else fallback
        self.view: ResponseView = options.response_view or settings.response_view
        self.batch = batch
        self.settings = settings
        self.rewards: list[ResponseScore] = []

    @property
    def model(self) -> str:
        """Name of the judge."""
        return self.batch.service.judge.profile.name

    @property
    def cost_limits(self) -> CostLimits:
        """Of one request."""
        return self.batch.service.cost_limits

    def cost_of(self, group: ResponseGroup | ResponseScore | None, *, scoring: Scoring) -> Cost:
        """The cost of the rewards of one group; nothing where there is none to judge."""
        if not isinstance(group, ResponseGroup):
            return Cost()
        return group_cost(group, scoring=scoring, group_size=self.batch.service.judge.profile.group_size)

    def affordable(self, costs: Sequence[Cost]) -> list[bool]:
        """Which samples of the request are judged, by what each costs.

        Raises:
            Refused: 413, the request costs too much, and this dialect says so by HTTP; or it has more samples than one
                request has rollouts.
        """
        self.check_samples(len(costs))
        if self.failures.style(MissingScore.TOO_COSTLY) is FailureStyle.ERROR:
            self.cost_limits.check(sum(costs, Cost()))
        return self.cost_limits.affordable(costs)

    def check_samples(self, num_samples: int) -> None:
        """
        Raises:
            Refused: 413, there are more than one request has rollouts, so that none could be judged.
        """
        self.cost_limits.check(Cost(rollouts=num_samples))

    def read_chat(self, text: str, *, prompt: str | None = None, reference: str | None = None) -> ResponseGroup | None:
        """The prompt and the last answer in a chat that a template rendered; None: it has no single reading.

        Args:
            text: the whole chat.
            prompt: its beginning, if the client sends that too; the answer is what follows.
            reference: an answer known to be good.
        """
        exchange = detemplate(text, prompt=prompt, view=self.view)
        if exchange is None:
            return None
        return ResponseGroup(prompt=exchange.prompt, responses=(exchange.response,), reference=reference)

    def read_chats(self, texts: Sequence[str]) -> list[ResponseGroup | None]:
        """The same for many chats, each a sample of the request."""
        self.check_samples(len(texts))
        return [self.read_chat(text) for text in texts]

    async def score(
        self, groups: Iterable[ResponseGroup | ResponseScore | None], *, scoring: Scoring | None = None
    ) -> list[ResponseScore]:
        """One reward for each response, group after group; logged and counted where there is none.

        Raises:
            Refused: the judge takes no such request, or the mode compares responses and each group has one alone.
            QueueFull, EngineUnavailable, ...: nothing could be judged, and this dialect says so by HTTP.
        """
        groups, scoring = list(groups), scoring or self.scoring
        is_single = all(not isinstance(group, ResponseGroup) or len(group.responses) == 1 for group in groups)
        if scoring.mode is RewardMode.COHORT and is_single:
            message = "mode: cohort given, but this protocol sends one response at a time; choose another mode"
            raise Refused(invalid(message, param="mode", code="invalid_value"))
        affordable = self.affordable([self.cost_of(group, scoring=scoring) for group in groups])
        judged = [group if may_be else None for group, may_be in zip(groups, affordable, strict=True)]
        results = await score_groups(judged, scoring=scoring, ask=self.batch.ask)
        rewards: list[ResponseScore] = []
        for found, group, may_be in zip(results, groups, affordable, strict=True):
            num = len(group.responses) if isinstance(group, ResponseGroup) else 1
            rewards += found if may_be else [TOO_COSTLY] * num
        self.note(rewards)
        return rewards

    def note(self, rewards: Sequence[ResponseScore]) -> None:
        """Keep rewards for the headers; log and count those that are missing.

        Raises:
            QueueFull, EngineUnavailable, ...: they are all missing, and this dialect says so by HTTP.
        """
        error = only_failures(rewards)
        if error is not None and self.failures.server is FailureStyle.ERROR:
            raise error
        count_missing(rewards, label=self.label, row=self.failures, fallbacks=self.settings.fallbacks)
        self.rewards += rewards

    def number(self, reward: ResponseScore) -> float:
        """The reward, or what stands in for it."""
        return self.fallback if reward.value is None else reward.value

    def usage(self) -> dict[str, int]:
        """In vLLM's words."""
        prompt, written = self.batch.input_tokens, self.batch.output_tokens
        return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
