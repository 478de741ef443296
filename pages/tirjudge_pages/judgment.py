"""A judgment on a page: what is computed for display. Every list is bounded, and says how much is left out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self

from tirjudge.http.protocol import JudgmentRecord
from tirjudge.right import differ, is_flipped
from tirjudge.turn_costs import generation_cost
from tirjudge.types import (
    CallRecord,
    ChatMessage,
    Judgment,
    Mode,
    RolloutRecord,
    TurnRecord,
    Verdict,
    label_of,
    prompt_text,
)
from tirjudge_pages.pieces import TextPiece, code_pieces, different_pieces
from tirjudge_pages.untrusted import MAX_CHARS, shown_text

MAX_TURNS = 100
"""Maximum number of turns on a page, over all rollouts."""

MAX_ITEMS = 100
"""Maximum number of responses, votes, calls, claims or rows on a page, each."""

MAX_RAW_CHARS = 200_000
"""Maximum length of the JSON on a page, in characters."""

HumanLabel = Literal["agree", "other", "tie"]
"""What a person says about a verdict: it is right, another response is best, or the responses are equally good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelShown:
    """A label of a person on the page."""

    label: HumanLabel
    best: int | None
    """Index of the response that is best in the person's opinion. None: the person did not name one."""
    note: str | None
    """None: no note, or it is erased."""
    caller: str | None
    """Name of the person's key. None: no key, or erased."""
    created_ms: int
    """Unix time in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditState:
    """What is known about the record of a judgment."""

    sequence: int
    """Position in the chain, from 1."""
    hash: str
    previous_hash: str
    intact: bool
    """Whether the record matches its hash."""
    dialect: str
    caller: str | None
    """None: no key, or erased."""
    request_id: str | None
    """None: not recorded, or erased."""
    versions: Mapping[str, Any]
    erased: Sequence[str]
    """Fields that were withheld or erased."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderShown:
    """The votes of one order of the responses."""

    shown: tuple[int, ...]
    """Indexes of the responses, in the order that the model saw."""
    rollouts: tuple[tuple[int, RolloutRecord], ...]
    """Index and rollout of each vote, at most `MAX_ITEMS`."""
    num_votes: int
    choice: int | None
    """Index of the response with most votes. None: a tie, or no verdict."""
    is_other: bool
    """Whether the order leads to a different response from the verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnView:
    """A turn with what a page shows of it."""

    turn: TurnRecord
    rollout: int
    """Index of its rollout in the judgment."""
    index: int
    """Index of the turn in its rollout."""
    prefix: str = ""
    """Beginning of the ids of elements, as in `JudgmentView`."""
    max_chars: int = MAX_CHARS
    """Maximum length of a text, in characters."""

    @property
    def id(self) -> str:
        """Id of its element."""
        return f"{self.prefix}turn-{self.rollout}-{self.index}"

    @property
    def cost(self) -> str:
        """Tokens and duration of its text. Empty: not known."""
        return generation_cost(self.turn)

    @property
    def reasoning(self) -> str:
        """Its text without the program, which is shown separately."""
        text, code = self.turn.text.strip().removesuffix("```output").rstrip(), self.turn.code
        if code is None:
            return text
        before, opened, rest = text.rpartition("```python")
        return before.rstrip() if opened and rest.strip().removesuffix("```").strip() == code.strip() else text

    @property
    def program(self) -> list[TextPiece]:
        """Its program in pieces by its syntax. Empty: no program."""
        return [] if self.turn.code is None else code_pieces(self.turn.code, max_chars=self.max_chars)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A probability."""

    label: str
    value: float
    """0 to 1."""


class JudgmentView:
    """A judgment with what a page shows of it.

    Args:
        judgment: The judgment.
        request: Fields of the request that are known. An empty mapping: the texts are not known.
        audit: State of the record. None: the judgment is not on record, or the page does not show it.
        created_ms: Time of the record. None: the time of the judgment.
        title: Name of the judgment on the page. None: its id.
        responses: Index that each response has on the page, if the request has some of the responses of an item only. None:
            its index in the request.
        id: Beginning of the ids of elements. Empty: the page shows one judgment.
        max_chars: Maximum length of a text of a turn, in characters.
    """

    def __init__(
        self,
        judgment: Judgment,
        *,
        request: Mapping[str, Any],
        audit: AuditState | None = None,
        created_ms: int | None = None,
        title: str | None = None,
        responses: Sequence[int] | None = None,
        id: str = "",
        max_chars: int = MAX_CHARS,
    ) -> None:
        self.judgment = judgment
        self.request = request
        self.audit = audit
        self.created_ms = judgment.created * 1000 if created_ms is None else created_ms
        self.title = title or judgment.id
        self.flipped = is_flipped(judgment)
        self.id = id
        self._shown_as = responses
        self._max_chars = max_chars

    @classmethod
    def of_record(cls, record: JudgmentRecord) -> Self:
        """Return the view of a record."""
        audit = AuditState(
            sequence=record.sequence,
            hash=record.hash,
            previous_hash=record.previous_hash,
            intact=record.intact,
            dialect=record.dialect,
            caller=record.caller,
            request_id=record.request_id,
            versions=record.versions,
            erased=record.erased,
        )
        return cls(record.judgment, request=record.request, audit=audit, created_ms=record.created_ms)

    def name(self, response: int) -> str:
        """Return the letter of a response on the page. `?`: the judgment names a response that the item lacks."""
        if self._shown_as is None:
            return label_of(response)
        return label_of(self._shown_as[response]) if response < len(self._shown_as) else "?"

    def names(self, responses: Sequence[int]) -> str:
        """Return the letters of responses, at most `MAX_ITEMS`."""
        return ", ".join(map(self.name, responses[:MAX_ITEMS]))

    @property
    def verdict(self) -> Verdict:
        """The verdict."""
        return self.judgment.verdict

    @property
    def headline(self) -> str:
        """The verdict in a few words, such as `Response A is better`."""
        verdict = self.verdict
        if verdict.status == "abstained":
            return "No verdict"
        if verdict.status == "tie":
            return "Tie"
        if verdict.best is None:
            return f"Score {verdict.label}"
        return f"Response {self.name(verdict.best)} is {'better' if self.num_responses == 2 else 'best'}"

    @property
    def num_responses(self) -> int:
        """Number of judged responses."""
        return len(self.judgment.judged) or len(self.responses or ())

    @property
    def prompt(self) -> str | None:
        """The prompt as the model saw it. None: not known."""
        prompt = self.request.get("prompt")
        if prompt is None or isinstance(prompt, str):
            return prompt
        return prompt_text([ChatMessage.model_validate(message) for message in prompt])

    @property
    def responses(self) -> Sequence[str] | None:
        """The responses. None: not known."""
        return self.request.get("responses")

    @cached_property
    def response_pieces(self) -> list[list[TextPiece]]:
        """The responses in pieces. Two responses have their differences marked."""
        responses = list(self.responses or ())[:MAX_ITEMS]
        if len(responses) == 2:
            return list(different_pieces(*responses))
        return [[TextPiece(shown_text(text), "")] for text in responses]

    @cached_property
    def bars(self) -> list[Bar]:
        """The distribution of the verdict: a probability for each response; for one response, for each score."""
        verdict = self.verdict
        if self.judgment.mode is Mode.POINTWISE and self.num_responses == 1:
            return self._score_bars()
        chances = list(verdict.probabilities or ())[:MAX_ITEMS]
        return [Bar(label=f"Response {self.name(index)}", value=p) for index, p in enumerate(chances)]

    def _score_bars(self) -> list[Bar]:
        """The mean distribution of the scores over the rollouts that have one."""
        found = [r.verdict.probabilities for r in self.judgment.rollouts if r.verdict and r.verdict.probabilities]
        labels = sorted({label for chances in found for label in chances}, key=lambda label: (len(label), label))
        return [
            Bar(label=label, value=sum(chances.get(label, 0.0) for chances in found) / len(found))
            for label in labels[:MAX_ITEMS]
        ]

    @cached_property
    def orders(self) -> list[OrderShown]:
        """The orders of the responses, with their votes."""
        groups: dict[tuple[int, ...], list[tuple[int, RolloutRecord]]] = {}
        for index, rollout in enumerate(self.judgment.rollouts):
            groups.setdefault(tuple(rollout.order), []).append((index, rollout))
        return [self._order(shown, votes) for shown, votes in list(groups.items())[:MAX_ITEMS]]

    def _order(self, shown: tuple[int, ...], votes: Sequence[tuple[int, RolloutRecord]]) -> OrderShown:
        chosen = [rollout.verdict.best for _, rollout in votes if rollout.verdict and rollout.verdict.best is not None]
        counts = {choice: chosen.count(choice) for choice in set(chosen)}
        first = [choice for choice, number in counts.items() if number == max(counts.values())]
        choice = first[0] if len(first) == 1 else None
        return OrderShown(
            shown=shown,
            rollouts=tuple(votes[:MAX_ITEMS]),
            num_votes=len(votes),
            choice=choice,
            is_other=differ([choice, self.verdict.best]),
        )

    @cached_property
    def timeline(self) -> list[tuple[RolloutRecord, list[TurnView]]]:
        """The rollouts with their turns. At most `MAX_TURNS` turns and `MAX_ITEMS` rollouts in all."""
        left, found = MAX_TURNS, []
        for number, rollout in enumerate(self.judgment.rollouts[:MAX_ITEMS]):
            turns = [
                TurnView(turn=turn, rollout=number, index=index, prefix=self.id, max_chars=self._max_chars)
                for index, turn in enumerate(rollout.turns[:left])
            ]
            left -= len(turns)
            found.append((rollout, turns))
        return found

    @property
    def num_turns_left_out(self) -> int:
        """Number of turns that the timeline does not have."""
        return sum(len(r.turns) for r in self.judgment.rollouts) - sum(len(turns) for _, turns in self.timeline)

    def cited(self, rollout: int, turn: int, call: int) -> CallRecord | None:
        """Return a function call that a claim cites. None: the calls are erased."""
        try:
            return self.judgment.rollouts[rollout].turns[turn].calls[call]
        except IndexError:
            return None

    @cached_property
    def raw(self) -> str:
        """The request and the judgment as JSON."""
        return json_text({"request": dict(self.request), "judgment": self.judgment.model_dump(mode="json")}, indent=1)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON."""
    return json.dumps(value, ensure_ascii=False, indent=indent, default=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class RanAgain:
    """A program that ran again, for comparison with the recorded output."""

    rollout: int
    turn: int
    result: str
    """`same`, `differs` or `timed_out`."""
    outcome: str
    """How the program ended this time."""
    output: str | None
    """Its output this time. None: the same as in the record."""
    reason: str | None
    """How its function calls differ. None: they do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveJudgment:
    """What only a server can do with a judgment."""

    path: str
    """Path of the page."""
    query: str
    """Query of the reader's filters with its question mark. Empty: no filters."""
    back: str
    """Path of the list with the reader's filters."""
    newer: str | None
    """Path of the next newer judgment of the list. None: this is the newest."""
    older: str | None
    """Path of the next older judgment of the list. None: this is the oldest."""
    may_label: bool
    may_run: bool
    """Whether the reader may run programs, and the server has a sandbox."""
    labels: Sequence[LabelShown] = ()
    """Labels of people, newest first."""
    again: RanAgain | None = None
    """A program that the reader ran again. None: none."""
