"""The basis of a verdict: checked by a program, reasoned, or guessed. This module is the only definition.

    guessed    forced, or the top label is hardly more probable than chance
    checked    the last program ended ok without executing the text of a response in its own process, and the CHECK line
               that it printed last implies the verdict; the model was sure of its programs, if its profile requires that
    reasoned   every other verdict

The CHECK line is the last line of a program's output: `CHECK {"A": 3, "B": 5}`, one number or boolean per label. For a
response shown alone it is `CHECK {"score": 7}` or `CHECK 7`. Higher is better; true is 1 and false is 0.

What the basis does not say: whether the program computed the values. A program that prints a text of a response prints
a CHECK line of that response, too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tirjudge.types import GOOD_SCORE, MAX_NUMBER, PYTHON, Basis, ExecResult, Mode, Rollout, label_of

CHECK = "CHECK "
"""Start of a CHECK line."""

MAX_CHECK_CHARS = 4096
"""Maximum length of a CHECK line in characters, with the blanks that follow it. A longer line is no CHECK line."""

SCORE = "score"
"""Key of the value in a pointwise CHECK line."""

MARGIN = 0.1
"""Minimum lead of the top label over chance. A verdict with a smaller lead is a guess."""

CheckValue = bool | int | float
"""A value of a CHECK line."""


def basis_of(rollout: Rollout, *, mode: Mode, num_shown: int | None = None) -> Basis | None:
    """Return the basis of the verdict of a rollout; None if it has no verdict.

    Args:
        rollout: the rollout.
        mode: mode of the request.
        num_shown: number of responses shown. None: the number of labels in `label_logprobs`; without them, the verdict of
            a comparison never counts as checked.
    """
    if rollout.label is None:
        return None
    probabilities = rollout.label_probabilities
    if rollout.forced or (probabilities and max(probabilities.values()) < 1 / len(probabilities) + MARGIN):
        return "guessed"
    stdout = None if rollout.is_unsure else _last_output(rollout)
    if stdout is None:
        return "reasoned"
    if mode is Mode.POINTWISE:
        value = parse_check(stdout, keys=(SCORE,), allows_bare=True)
        return "checked" if value is not None and _implies_score(value[SCORE], rollout.label) else "reasoned"
    labels = list(probabilities) if num_shown is None else [label_of(place) for place in range(num_shown)]
    values = parse_check(stdout, keys=labels)
    return "checked" if values is not None and _only_top(values) == rollout.label else "reasoned"


def combined_basis(bases: Iterable[Basis | None]) -> Basis | None:
    """Return the basis of a verdict over several counted verdicts.

    `guessed` if any of them is guessed; else None if the basis of any is not known, or if there are none; else `checked`
    if all are checked; else `reasoned`.
    """
    found = set(bases)
    if "guessed" in found:
        return "guessed"
    if None in found or not found:
        return None
    return "checked" if found == {"checked"} else "reasoned"


def parse_check(stdout: str, *, keys: Collection[str], allows_bare: bool = False) -> dict[str, CheckValue] | None:
    """Return the values of the CHECK line at the end of a program's output; None if there is no valid one.

    The work is bounded: only the last `MAX_CHECK_CHARS` characters are read.

    Args:
        stdout: the whole output of the program.
        keys: the keys that the line must have, no more and no fewer.
        allows_bare: whether the line may hold one value alone. It belongs to the first key.
    """
    end = stdout[-MAX_CHECK_CHARS:].rstrip()
    start = end.rfind("\n") + 1
    if not end.startswith(CHECK, start) or (start == 0 and len(stdout) > MAX_CHECK_CHARS):
        return None
    text = end[start + len(CHECK) :]
    if "[" in text or text.count("{") > 1:  # nested
        return None
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refused)
    except ValueError:
        return None
    if allows_bare and not isinstance(value, Mapping):
        value = {next(iter(keys)): value}
    if not isinstance(value, Mapping) or value.keys() != set(keys) or not all(map(_is_value, value.values())):
        return None
    return dict(value)


def _last_output(rollout: Rollout) -> str | None:
    """Return the whole output of the last program; None if there is none, it failed, its output was cut, or a response may
    have forged it."""
    results = [t.result for t in rollout.turns if t.result is not None and t.call is not None and t.call.tool == PYTHON]
    if not results or not results[-1].outcome.is_ok:
        return None
    last = results[-1]
    is_unsure = isinstance(last, ExecResult) and (last.truncated or last.in_process)
    return None if is_unsure else last.stdout


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON as a dict.

    Raises:
        ValueError: a key occurs twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key given twice")
    return found


def _refused(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _is_value(value: Any) -> bool:
    return isinstance(value, bool | int | float) and -MAX_NUMBER <= value <= MAX_NUMBER


def _only_top(values: Mapping[str, CheckValue]) -> str | None:
    """Return the label with the strictly highest of several values; None if labels share it."""
    if len(values) < 2:
        return None
    highest = max(values.values())
    top = [label for label, value in values.items() if value == highest]
    return top[0] if len(top) == 1 else None


def _implies_score(value: CheckValue, label: str) -> bool:
    """Whether a value implies the written score: a boolean its half of the scale, a number the score nearest to it (a
    half is rounded up)."""
    score = float(label)
    if isinstance(value, bool):
        return (score >= GOOD_SCORE) is value
    return math.floor(value + 0.5) == math.floor(score + 0.5)
