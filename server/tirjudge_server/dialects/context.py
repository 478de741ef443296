"""The context of one dialect request: its options, the judge, and its scores so far."""

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
    reason="the request costs more than the server allows; send fewer samples or use fewer votes",
)
"""The missing score of a sample that costs more than its share of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectSettings:
    """The settings that all dialects of a server share."""

    scoring: Scoring = field(default_factory=Scoring)
    """How responses become rewards. Options in the URL query override it."""
    fallback: float | None = None
    """Score for missing scores in protocols that require a number; None: the middle of the scale."""
    response_view: ResponseView = "final"
    """Whether the judge sees a response's reasoning."""
    patience_s: float = 30.0
    """Maximum seconds that a request waits while the queue is full or the engine is down, if its client does not retry."""
    cohort_size: int = 1
    """NeMo Gym's `/verify`: number of rollouts of one prompt to compare; 1: rollouts are judged separately."""
    cohort_wait_s: float = 1500.0
    """Maximum seconds that the first rollout waits for the last one."""
    max_body_bytes: int = MAX_BODY_BYTES
    """Maximum size of a request body."""
    fallbacks: Fallbacks = field(default_factory=Fallbacks)
    """Counts missing scores."""


class DialectContext:
    """One request of a dialect.

    Attributes:
        label: label of the row in the failure table.
        failures: the row of the failure table.
        path: path of the request.
        options: the parsed URL query.
        settings: settings of all dialects.
        state: state of the dialect between requests; None: no state.
        scoring: how responses become rewards, from the server's settings and the options.
        fallback: score for missing scores.
        view: whether the judge sees a response's reasoning.
        batch: judges the requests.
        rewards: the scores so far.
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
        default = settings.scoring
        self.label = label
        self.failures = failures
        self.path = path
        self.options: Any = options
        self.state = state
        self.scoring = Scoring(
            mode=options.mode or default.mode,
            strategy=options.strategy or default.strategy,
            scale=default.scale if options.scale is None else (float(options.scale[0]), float(options.scale[1])),
            judging={**default.judging, **options.judging},
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
        """Maximum cost of one request."""
        return self.batch.service.cost_limits

    def cost_of(self, group: ResponseGroup | ResponseScore | None, *, scoring: Scoring) -> Cost:
        """The cost of the rewards of one group; zero if `group` is not a group."""
        if not isinstance(group, ResponseGroup):
            return Cost()
        return group_cost(group, scoring=scoring, group_size=self.batch.service.judge.profile.group_size)

    def affordable(self, costs: Sequence[Cost]) -> list[bool]:
        """Return for each sample of the request whether it is judged, given the cost of each sample.

        Raises:
            Refused: 413, the request has more samples than the maximum number of rollouts; or its total cost is too high
                and this dialect reports that as an HTTP error.
        """
        self.check_samples(len(costs))
        if self.failures.style(MissingScore.TOO_COSTLY) is FailureStyle.ERROR:
            self.cost_limits.check(sum(costs, Cost()))
        return self.cost_limits.affordable(costs)

    def check_samples(self, num_samples: int) -> None:
        """Check the number of samples.

        Raises:
            Refused: 413, there are more samples than the maximum number of rollouts of a request.
        """
        self.cost_limits.check(Cost(rollouts=num_samples))

    def read_chat(self, text: str, *, prompt: str | None = None, reference: str | None = None) -> ResponseGroup | None:
        """Parse a rendered chat into its prompt and last response; None: not possible, or ambiguous.

        Args:
            text: the whole chat, rendered by a chat template.
            prompt: the rendered prompt, if the client sends it separately; None: the client does not.
            reference: a reference answer; None: no reference.
        """
        exchange = detemplate(text, prompt=prompt, view=self.view)
        if exchange is None:
            return None
        return ResponseGroup(prompt=exchange.prompt, responses=(exchange.response,), reference=reference)

    def read_chats(self, texts: Sequence[str]) -> list[ResponseGroup | None]:
        """Parse many rendered chats, each a sample of the request.

        Raises:
            Refused: 413, as for `check_samples`.
        """
        self.check_samples(len(texts))
        return [self.read_chat(text) for text in texts]

    async def score(
        self, groups: Iterable[ResponseGroup | ResponseScore | None], *, scoring: Scoring | None = None
    ) -> list[ResponseScore]:
        """Score all responses; return the scores in order, group after group. Missing scores are logged and counted.

        Args:
            groups: the groups; None: a group that cannot be parsed. A `ResponseScore`: a known score.
            scoring: how responses become rewards; None: `self.scoring`.

        Raises:
            Refused: the request is invalid, or the mode compares responses but every group has one response.
            QueueFull, EngineUnavailable, ...: every score failed because of the server, and this dialect reports that as an
                HTTP error.
        """
        groups, scoring = list(groups), scoring or self.scoring
        is_single = all(not isinstance(group, ResponseGroup) or len(group.responses) == 1 for group in groups)
        if scoring.mode is RewardMode.COHORT and is_single:
            message = "mode: cohort given, but this protocol sends one response per request; use a different mode"
            raise Refused(invalid(message, param="mode", code="invalid_value"))
        affordable = self.affordable([self.cost_of(group, scoring=scoring) for group in groups])
        judged = [group if is_affordable else None for group, is_affordable in zip(groups, affordable, strict=True)]
        results = await score_groups(judged, scoring=scoring, ask=self.batch.ask)
        rewards: list[ResponseScore] = []
        for found, group, is_affordable in zip(results, groups, affordable, strict=True):
            num = len(group.responses) if isinstance(group, ResponseGroup) else 1
            rewards += found if is_affordable else [TOO_COSTLY] * num
        self.note(rewards)
        return rewards

    def note(self, rewards: Sequence[ResponseScore]) -> None:
        """Record scores for the response headers; log and count missing scores.

        Raises:
            QueueFull, EngineUnavailable, ...: every score failed because of the server, and this dialect reports that as an
                HTTP error.
        """
        error = only_failures(rewards)
        if error is not None and self.failures.server is FailureStyle.ERROR:
            raise error
        count_missing(rewards, label=self.label, row=self.failures, fallbacks=self.settings.fallbacks)
        self.rewards += rewards

    def number(self, reward: ResponseScore) -> float:
        """The reward, or the fallback for a missing one."""
        return self.fallback if reward.value is None else reward.value

    def usage(self) -> dict[str, int]:
        """Token counts in vLLM's format, which requires numbers: 0 if the endpoint of the model reports none."""
        prompt, written = self.batch.input_tokens or 0, self.batch.output_tokens or 0
        return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
