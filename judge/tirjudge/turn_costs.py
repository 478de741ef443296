"""What a turn cost, as text for people: generated tokens and durations."""

from __future__ import annotations

from tirjudge.counted import counted
from tirjudge.types import TurnRecord


def generation_cost(turn: TurnRecord) -> str:
    """Return the tokens and the duration of a turn's text, such as `34 tokens, 1,250 ms`. Empty: not known."""
    num = turn.num_tokens
    parts = [] if num is None else [counted(num, "token")]
    return ", ".join([*parts, *([] if turn.engine_ms is None else [shown_ms(turn.engine_ms)])])


def shown_ms(ms: float) -> str:
    """Return a duration as text.

    >>> shown_ms(0.42), shown_ms(1250.4)
    ('0.4 ms', '1,250 ms')
    """
    return f"{ms:,.0f} ms" if ms >= 10 else f"{ms:.1f} ms"
