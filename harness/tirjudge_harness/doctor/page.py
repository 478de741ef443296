"""The page that `tirjudge doctor` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tirjudge_harness.doctor.checkup import Checkup
from tirjudge_harness.doctor.conclusion import MAX_FORMAT_ERRORS, MIN_LABEL_MASS
from tirjudge_harness.doctor.facts import TemplateState
from tirjudge_harness.doctor.passes import PassFigures, PassName
from tirjudge_harness.statistics.intervals import Estimate

UNKNOWN = "not known"

STATES = {True: "ok: ", False: "broken: ", None: "not known: "}
"""Whether a part works -> start of its line."""


def print_page(checkup: Checkup, *, console: Console) -> None:
    """Print all findings on one page."""
    console.print(page_of(checkup), highlight=False)


def page_of(checkup: Checkup) -> RenderableType:
    """Return the page: the model, the table of the passes, and the conclusion."""
    facts = Table(show_header=False, box=None, pad_edge=False)
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in (*_facts(checkup), *_of_engine(checkup)):
        facts.add_row(name, Text(value))
    conclusion = checkup.conclusion
    lines: list[RenderableType] = [facts, Text()]
    lines += [_table(checkup), Text()] if checkup.passes else []
    lines += [Text(f"broken: {problem}", style="red") for problem in conclusion.broken]
    return Group(*lines, Text(conclusion.sentence, style="bold"))


def _facts(checkup: Checkup) -> Iterator[tuple[str, str]]:
    model = checkup.model
    yield "model", model.name
    yield "address", model.address + ("" if model.fingerprint is None else f", fingerprint {model.fingerprint}")
    trained = ", which it was trained on" if model.trained_on_format else ", not trained on it"
    yield "prompt format", "none: a scalar reward model" if model.format is None else model.format + trained
    for finding in checkup.findings:
        yield finding.name, f"{STATES[finding.is_ok]}{finding.detail}"
    if checkup.template is not None:
        yield "chat template", _template(checkup.template)
    if (tokens := checkup.special_tokens) is not None:
        families = "of all known families; its tokenizer is not known"
        origin = "of its tokenizer" if tokens.source == "tokenizer" else families
        yield "special tokens", f"{tokens.number} {origin}"


def _of_engine(checkup: Checkup) -> Iterator[tuple[str, str]]:
    """Yield what the passes showed about the engine."""
    is_scalar = checkup.model.format is None
    if not is_scalar and checkup.passes:
        yield "label mass", _label_mass(checkup)
    for number, stop in enumerate(checkup.stops):
        missed = f", missed in {stop.missed}" if stop.missed else ""
        yield "" if number else "stop strings", f"{stop.text} ended {stop.matched} of {stop.turns} turns{missed}"
    known = checkup.model.context_tokens
    context = UNKNOWN if known is None else f"{known:,} tokens"
    largest = UNKNOWN if checkup.largest_prompt is None else f"{checkup.largest_prompt:,} tokens"
    yield "context", context if is_scalar else f"{context}; longest prompt of the items: {largest}"
    if (cache := checkup.prefix_cache) is not None:
        reported = f"{cache.cached_tokens or 0:,} of {cache.prompt_tokens or 0:,} tokens of a repeated prompt"
        yield (
            "prefix cache",
            f"{UNKNOWN}: the endpoint does not report it" if cache.cached_tokens is None else reported,
        )
    if (speed := checkup.speed) is not None:
        per_s = "" if not speed.output_tokens_per_s else f"{speed.output_tokens_per_s:,.0f} output tokens/s, "
        yield "speed", f"{per_s}{speed.judgments_per_s:.2f} judgments/s, {speed.concurrency} at once"


def _label_mass(checkup: Checkup) -> str:
    mass = checkup.label_mass
    if mass is None:
        return f"{UNKNOWN}: the engine returns no probabilities"
    spread = f"mean {mass.mean:.3f}, minimum {mass.minimum:.3f}"
    return f"{spread}, over {mass.verdicts} verdicts (at least {MIN_LABEL_MASS} is needed)"


def _template(state: TemplateState) -> str:
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
    for name in checkup.passes:
        table.add_column(PassName(name).shown, justify="right")
    passes = list(checkup.passes.values())
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
