"""Print an item for people: prompt, responses, and each rollout with its programs, outputs and verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from tirjudge.turn_costs import generation_cost, shown_ms
from tirjudge.types import CheckReason, Judgment, RolloutRecord, TurnRecord, Verdict, label_of, prompt_text
from tirjudge.visible import visible
from tirjudge_harness.showing.items import AskedJudgment, ShownItem
from tirjudge_harness.showing.shortening import shortened


def print_item(item: ShownItem, *, console: Console, full: bool) -> None:
    """Print an item. The texts are printed literally, with visible control characters.

    Args:
        item: the item.
        console: console with the width of the lines.
        full: whether to print long texts whole.
    """
    console.print(Group(*_parts(item, full=full)), highlight=False)


def _parts(item: ShownItem, *, full: bool) -> Iterator[RenderableType]:
    yield Rule(Text(visible(_head(item)), style="bold"), align="left")
    if item.prompt is not None:
        yield from _section("Prompt", prompt_text(item.prompt), full=full)
    for index, response in enumerate(item.responses or ()):
        right = " (right)" if index in item.correct else ""
        yield from _section(f"Response {label_of(index)}{right}", response, full=full)
    if item.responses is None and item.correct:
        yield Text(f"Right: {', '.join(map(label_of, item.correct))}")
    if item.error is not None:
        yield from _section("Not judged", item.error, full=full)
    elif not item.judgments:
        yield Text("Not judged", style="bold")
    for asked in item.judgments:
        yield from _judgment(asked, full=full)


def _head(item: ShownItem) -> str:
    parts = [item.id]
    parts += [] if item.row is None else [f"row {item.row}"]
    parts += [f"subset {item.subset}"] if item.subset else []
    parts += [] if item.rating is None else [f"rating {item.rating:g}"]
    parts += [] if item.result is None else ["no verdict" if item.result == "none" else item.result]
    parts += [word for word, holds in (("forced", item.forced), ("flipped", item.flipped)) if holds]
    return ", ".join(filter(None, parts)) or "judgment"


def _section(title: str, text: str, *, full: bool) -> Iterator[RenderableType]:
    yield Text(title, style="bold")
    yield _block(text, full=full)


def _block(text: str, *, full: bool) -> RenderableType:
    return Padding(Text(visible(text if full else shortened(text)), overflow="fold"), (0, 0, 0, 2), expand=False)


def _judgment(asked: AskedJudgment, *, full: bool) -> Iterator[RenderableType]:
    judgment = asked.judgment
    for rollout in judgment.rollouts:
        shown = [label_of(asked.responses[index]) for index in rollout.order]
        yield Text(_order_line(shown), style="bold")
        for number, turn in enumerate(rollout.turns, 1):
            yield from _turn(turn, number=number, full=full)
        yield Text(f"  {_rollout_line(rollout, shown=shown)}")
    for index, results in zip(asked.responses, judgment.checks, strict=False):
        for result in results:
            if result.failed:
                yield Text(f"Response {label_of(index)} fails the check {visible(result.check)}", style="bold")
                yield from (_block(_finding(reason), full=full) for reason in result.reasons)
    yield Text(verdict_line(judgment, responses=asked.responses), style="bold")


def _finding(reason: CheckReason) -> str:
    """A finding of a check, with the row or the place that shows it."""
    row = [] if reason.row is None else [json.dumps(reason.row, ensure_ascii=False)]
    place = [part for part in (reason.focus, reason.path) if part is not None]
    return "\n".join([reason.message, *row, *([" ".join(place)] if place else [])])


def _order_line(shown: Sequence[str]) -> str:
    if len(shown) == 1:
        return f"Rollout on response {shown[0]}"
    return f"Rollout, shown in the order {', '.join(shown)}"


def _turn(turn: TurnRecord, *, number: int, full: bool) -> Iterator[RenderableType]:
    if cost := generation_cost(turn):
        yield Text(f"  Turn {number}, {cost}", style="dim")
    # The model writes the opening of the output's block, which follows below.
    text = turn.text.strip().removesuffix("```output").rstrip() if turn.was_called else turn.text.strip()
    if text:
        yield _block(text, full=full)
    if turn.outcome is not None:
        took = "" if turn.tool_ms is None else f", {shown_ms(turn.tool_ms)}"
        yield Text(f"  Output ({turn.outcome.value}){took}", style="bold")
        yield Padding(_block(turn.output or "", full=full), (0, 0, 0, 2), expand=False)


def _rollout_line(rollout: RolloutRecord, *, shown: Sequence[str]) -> str:
    verdict = rollout.verdict
    if verdict is None:
        return f"No verdict: {rollout.stop_reason.value}"
    names = ", ".join(f"{label_of(place)} is response {name}" for place, name in enumerate(shown))
    is_as_listed = all(label_of(place) == name for place, name in enumerate(shown))
    said = f"Wrote {visible(verdict.label)}" + (f" ({names})" if verdict.best is not None and not is_as_listed else "")
    chance = verdict.probabilities.get(verdict.label)
    parts = [said] + ([] if chance is None else [f"P {chance:.3f}"]) + (["forced"] if verdict.forced else [])
    return ", ".join(parts)


def verdict_line(judgment: Judgment, *, responses: Sequence[int]) -> str:
    """Return the verdict in one line.

    Args:
        judgment: the judgment.
        responses: indexes of the judged responses, in the order of the request.
    """
    verdict = judgment.verdict
    parts = [f"Verdict: {_decision(verdict, responses=responses)}"]
    parts += [] if verdict.confidence is None else [f"confidence {verdict.confidence:.3f}"]
    parts += [] if verdict.basis is None else [verdict.basis]
    parts += ["forced"] if verdict.forced else []
    parts += [f"because of {gate.check}" for gate in verdict.gates if gate.before != gate.after]
    return ", ".join(parts)


def _decision(verdict: Verdict, *, responses: Sequence[int]) -> str:
    why = f" ({verdict.reason})" if verdict.reason else ""
    scores = [
        f"{label_of(index)} {'-' if score is None else f'{score:.2f}'}"
        for index, score in zip(responses, verdict.scores or (), strict=False)
    ]
    if len(scores) == 1:
        return f"score {scores[0].partition(' ')[2]} for response {scores[0].partition(' ')[0]}{why}"
    named = "abstained" if verdict.status == "abstained" else "tie"
    if verdict.best is not None:
        named = (
            f"response {label_of(responses[verdict.best])} is better"
            if len(responses) == 2
            else (f"response {label_of(responses[verdict.best])} is best")
        )
    return named + why + (f", scores {', '.join(scores)}" if scores else "")
