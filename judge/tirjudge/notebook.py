"""How notebooks show a judgment: its verdict, the probabilities, and the turns of each rollout. All texts are escaped."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from tirjudge.types import Judgment, RolloutRecord, TurnRecord, label_of

MAX_CHARS = 20_000
"""Maximum characters of one text in a notebook."""


def judgment_html(judgment: Judgment) -> str:
    """Return a judgment as HTML without scripts. Programs and their outputs are folded."""
    return "".join(
        [
            f"<div><p><b>{escape(verdict_text(judgment))}</b></p>",
            _table(judgment),
            *(_rollout(number, rollout) for number, rollout in enumerate(judgment.rollouts, start=1)),
            f"<p><small>{escape(_facts(judgment))}</small></p></div>",
        ]
    )


def verdict_text(judgment: Judgment) -> str:
    """Return the verdict in one line, such as `Response A is best, confidence 0.999, checked`."""
    verdict = judgment.verdict
    if verdict.status == "abstained":
        said = "No verdict"
    elif verdict.status == "tie":
        said = "A tie"
    elif verdict.best is None:
        said = f"Score {verdict.label}"
    else:
        said = f"Response {label_of(verdict.best)} is best"
    parts = [said + (f" ({verdict.reason})" if verdict.reason else "")]
    parts += [] if verdict.confidence is None else [f"confidence {verdict.confidence:.3f}"]
    parts += [] if verdict.basis is None else [verdict.basis]
    parts += ["forced"] if verdict.forced else []
    return ", ".join(parts)


def _table(judgment: Judgment) -> str:
    """One row per response, with its score and its probability."""
    verdict = judgment.verdict
    scores, probabilities = verdict.scores or [], verdict.probabilities or []
    num = max(len(scores), len(probabilities))
    rows = [
        "<tr>"
        f"<td>{label_of(index)}</td><td>{_number(scores, index)}</td>"
        f"<td>{_number(probabilities, index)}</td><td>{_bar(probabilities, index)}</td></tr>"
        for index in range(num)
    ]
    return (
        f"<table><tr><th>response</th><th>score</th><th>probability</th><th></th></tr>{''.join(rows)}</table>"
        if num
        else ""
    )


def _number(values: list[float] | list[float | None], index: int) -> str:
    value = values[index] if index < len(values) else None
    return "" if value is None else f"{value:.3f}"


def _bar(probabilities: list[float], index: int) -> str:
    if index >= len(probabilities):
        return ""
    return f'<meter min="0" max="1" value="{probabilities[index]:.4f}"></meter>'


def _rollout(number: int, rollout: RolloutRecord) -> str:
    order = ", ".join(label_of(index) for index in rollout.order)
    label = "no verdict" if rollout.verdict is None else f"wrote {rollout.verdict.label}"
    head = f"Rollout {number}: shown {order}; {label}; {rollout.num_programs} programs"
    body = "".join(part for turn in rollout.turns for part in _turn(turn))
    return f"<details><summary>{escape(head)}</summary>{body}</details>"


def _turn(turn: TurnRecord) -> Iterator[str]:
    if turn.text.strip():
        yield _text(turn.text.strip())
    if turn.outcome is not None:
        yield f"<p><small>Output ({escape(turn.outcome.value)})</small></p>{_text(turn.output or '')}"


def _text(text: str) -> str:
    shown = text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]} [... {len(text) - MAX_CHARS} more characters]"
    return f'<pre style="white-space: pre-wrap; text-align: left">{escape(shown)}</pre>'


def _facts(judgment: Judgment) -> str:
    tokens = "" if judgment.usage.output_tokens is None else f"{judgment.usage.output_tokens} output tokens, "
    return f"{judgment.model}, {judgment.mode.value}, {tokens}{judgment.timing.total_s:.2f} s, {judgment.id}"
