"""The page that `tirjudge doctor` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tirjudge_harness.doctor.checkup import Checkup
from tirjudge_harness.doctor.conclusion import MAX_FORMAT_ERRORS, MIN_LABEL_MASS
from tirjudge_harness.doctor.passes import PassFigures, PassName
from tirjudge_harness.statistics.intervals import Estimate

UNKNOWN = "not known"


def print_page(checkup: Checkup, *, console: Console) -> None:
    """Print all findings on one page."""
    console.print(page_of(checkup), highlight=False)


def page_of(checkup: Checkup) -> RenderableType:
    """Return the page: the model, the table of the three passes, and the conclusion."""
    facts = Table(show_header=False, box=None, pad_edge=False)
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in _facts(checkup):
        facts.add_row(name, Text(value))
    conclusion = checkup.conclusion
    lines: list[RenderableType] = [facts, Text(), _table(checkup), Text()]
    lines += [Text(f"broken: {problem}", style="red") for problem in conclusion.broken]
    return Group(*lines, Text(conclusion.sentence, style="bold"))


def _facts(checkup: Checkup) -> Iterator[tuple[str, str]]:
    model = checkup.model
    yield "model", model.name
    yield "address", model.address + ("" if model.fingerprint is None else f", fingerprint {model.fingerprint}")
    yield (
        "prompt format",
        model.format + (", which it was trained on" if model.trained_on_format else ", not trained on it"),
    )
    yield "chat template", _template(checkup)
    tokens = checkup.special_tokens
    origin = "of its tokenizer" if tokens.source == "tokenizer" else "of all known families; its tokenizer is not known"
    yield "special tokens", f"{tokens.number} {origin}"
    yield "label mass", _label_mass(checkup)
    for number, stop in enumerate(checkup.stops):
        missed = f", missed in {stop.missed}" if stop.missed else ""
        yield "" if number else "stop strings", f"{stop.text} ended {stop.matched} of {stop.turns} turns{missed}"
    context = UNKNOWN if model.context_tokens is None else f"{model.context_tokens:,} tokens"
    largest = UNKNOWN if checkup.largest_prompt is None else f"{checkup.largest_prompt:,} tokens"
    yield "context", f"{context}; longest prompt of the items: {largest}"
    cache = checkup.prefix_cache
    yield (
        "prefix cache",
        (
            f"{UNKNOWN}: the endpoint does not report it"
            if cache.cached_tokens is None
            else f"{cache.cached_tokens:,} of {cache.prompt_tokens or 0:,} tokens of a repeated prompt"
        ),
    )
    speed = checkup.speed
    tokens_per_s = "" if speed.output_tokens_per_s is None else f"{speed.output_tokens_per_s:,.0f} output tokens/s, "
    yield "speed", f"{tokens_per_s}{speed.judgments_per_s:.2f} judgments/s, {speed.concurrency} at once"


def _label_mass(checkup: Checkup) -> str:
    mass = checkup.label_mass
    if mass is None:
        return f"{UNKNOWN}: the engine returns no probabilities"
    spread = f"mean {mass.mean:.3f}, minimum {mass.minimum:.3f}"
    return f"{spread}, over {mass.verdicts} verdicts (at least {MIN_LABEL_MASS} is needed)"


def _template(checkup: Checkup) -> str:
    state = checkup.template
    thinking = {
        None: "enable_thinking: not known",
        True: "has the option enable_thinking",
        False: "has no option enable_thinking",
    }[state.knows_thinking]
    options = UNKNOWN if state.options is None else str(state.options or "none")
    thought = {None: UNKNOWN, "open": "yes", "possible": "no, but the model may", "off": "no"}[state.thinking]
    return f"{thinking}; options given: {options}; the prompt opens a thought: {thought}"


def _table(checkup: Checkup) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(f"{checkup.items} items", style="bold", no_wrap=True)
    for name in PassName:
        table.add_column(name.shown, justify="right")
    passes = [checkup.passes[name.value] for name in PassName]
    for title, show in ROWS:
        table.add_row(title, *map(show, passes))
    bases = sorted({basis for one in passes for basis in one.basis or {}})
    for basis in bases:
        table.add_row(f"verdicts {basis} %", *(_percent((one.basis or {}).get(basis, 0.0)) for one in passes))
    chance = "" if checkup.chance is None else f"A judge that guesses is right in {checkup.chance:.1%}. "
    table.caption = f"{chance}Shares in %, with 95 % intervals."
    table.caption_justify = "left"
    return table


def _share(share: Estimate) -> str:
    if share.value is None:
        return "-"
    interval = "" if share.interval is None else f" ({share.interval[0] * 100:.0f} to {share.interval[1] * 100:.0f})"
    return f"{share.value * 100:.1f}{interval}"


def _percent(value: float) -> str:
    return f"{value * 100:.1f}"


def _number(value: float | None, *, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


ROWS: tuple[tuple[str, Callable[[PassFigures], str]], ...] = (
    ("accuracy %", lambda one: _share(one.accuracy)),
    ("rollouts that ran a program %", lambda one: _share(one.tool_rate)),
    ("programs that failed %", lambda one: _share(one.program_errors)),
    (f"format errors % (at most {MAX_FORMAT_ERRORS * 100:.0f})", lambda one: _share(one.format_errors)),
    ("forced verdicts %", lambda one: _share(one.forced)),
    ("prompt tokens per judgment", lambda one: _number(one.input_tokens)),
    ("output tokens per judgment", lambda one: _number(one.output_tokens)),
    ("seconds per judgment", lambda one: _number(one.seconds, digits=2)),
    ("judgments", lambda one: _number(one.judgments)),
    ("failed requests", lambda one: _number(one.failed)),
)
"""Rows of the table: title, and the text for a pass."""
