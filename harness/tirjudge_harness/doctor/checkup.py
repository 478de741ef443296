"""Examine a model: open it, look at its parts, and judge the items of `selfcheck` three times. A judge without tools judges
them once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from tirjudge.errors import TirjudgeError
from tirjudge.judge import Judge
from tirjudge.types import JudgeRequest, Mode
from tirjudge_harness.bench_run import RunContext, load
from tirjudge_harness.benchmarks.selfcheck import BENCHMARK
from tirjudge_harness.doctor.conclusion import Conclusion, LabelMass, conclude, label_mass_of
from tirjudge_harness.doctor.facts import (
    PrefixCache,
    SpecialTokens,
    StopString,
    TemplateState,
    prefix_cache,
    special_tokens,
    stop_strings,
    template_state,
)
from tirjudge_harness.doctor.findings import ModelFinding
from tirjudge_harness.doctor.format_checks import format_findings
from tirjudge_harness.doctor.observing import ObservedEngine, ObservedTurn, ToolWithoutOutput
from tirjudge_harness.doctor.passes import PassFigures, PassName, SelfcheckPass, chance_of, run_pass
from tirjudge_harness.doctor.scalar_checks import scalar_findings
from tirjudge_harness.examples import Example
from tirjudge_harness.items import InputError
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.run_store import RunStopped


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminedModel:
    """The model and its sizes."""

    name: str
    address: str
    """Address of the model, such as `vllm:URL`."""
    fingerprint: str | None
    """Hash of the weights. None: not known."""
    format: str | None
    """Name of the prompt format. None: a scalar reward model."""
    trained_on_format: bool
    """Whether the checkpoint was trained on the format."""
    context_tokens: int | None
    """Length of the context. None: not known, because a chat endpoint does not tell it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Speed of the first pass."""

    output_tokens_per_s: float | None
    """Generated tokens of all judgments per second. None: the endpoint reports no counts."""
    judgments_per_s: float
    concurrency: int
    """Maximum number of concurrent judgments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """Everything that the doctor found."""

    version: str
    """Version of tirjudge."""
    model: ExaminedModel
    findings: list[ModelFinding]
    """Findings about the format of another judge, or about a scalar reward model. Empty: neither."""
    template: TemplateState | None
    """None: a scalar reward model."""
    special_tokens: SpecialTokens | None
    """None: a scalar reward model."""
    label_mass: LabelMass | None
    """Over the verdicts with and without tools. None: the engine returns no probabilities."""
    stops: list[StopString]
    largest_prompt: int | None
    """Number of tokens of the longest prompt of the items. None: the endpoint reports no counts."""
    prefix_cache: PrefixCache | None
    """None: a scalar reward model, or no item can be shown."""
    speed: Speed | None
    """None: no item was judged."""
    items: int
    """Number of items."""
    chance: float | None
    """Accuracy of a judge that guesses. None: no item was judged."""
    passes: dict[str, PassFigures]
    """Name of the pass -> its figures."""
    conclusion: Conclusion

    def as_json(self) -> dict[str, Any]:
        """Return all findings as JSON data."""
        return asdict(self)


async def examine(
    opening: AbstractAsyncContextManager[OpenJudge], *, num_items: int | None, concurrency: int, console: Console
) -> Checkup:
    """Open a model, examine it, and close it.

    Args:
        opening: opens the model in this process, with its tools.
        num_items: number of items to judge. None: all.
        concurrency: maximum number of concurrent judgments.
        console: console for the progress.

    Raises:
        InputError: the model cannot be opened, reached or used. The message says why.
    """
    try:
        async with opening as opened:
            if opened.local is None:
                raise InputError(
                    "the doctor examines a model, not a tirjudge server; give --engine, --chat-url or --model"
                )
            _say(f"Opened {opened.model} at {opened.address}; sending the first prompt", console=console)
            return await _examine(opened, opened.local, num_items=num_items, concurrency=concurrency, console=console)
    except RunStopped as error:
        raise InputError(f"the model stopped answering: {error.why or error}") from error
    except InputError:
        raise
    except TirjudgeError as error:
        raise InputError(str(error)) from error


async def _examine(
    opened: OpenJudge, local: Judge, *, num_items: int | None, concurrency: int, console: Console
) -> Checkup:
    parts = await _parts(local, load(BENCHMARK, data=None, console=console).examples)
    observed = ObservedEngine(local.engine)
    judge = replace(local, engine=observed.engine)
    blind = replace(judge, tools=[ToolWithoutOutput(tool) for tool in judge.tools])
    passes: dict[PassName, SelfcheckPass] = {}
    with TemporaryDirectory(prefix="tirjudge-doctor-") as folder:
        for number, name in enumerate(parts.passes, start=1):
            removed = name is PassName.OUTPUTS_REMOVED
            patient = replace(
                opened,
                judge=(blind if removed else judge).judge,
                model=f"{opened.model}, {name.shown}" if removed else opened.model,
            )
            title = f"{number}/{len(parts.passes)} {name.shown}"
            _say(title, console=console)
            context = RunContext(opened=patient, concurrency=concurrency, console=console)
            passes[name] = await run_pass(
                name, parts.examples, folder=Path(folder) / name, num_items=num_items, context=context, title=title
            )
    return _checkup(opened, local, parts=parts, passes=passes, turns=observed.turns, concurrency=concurrency)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What is known about a model before the first pass."""

    findings: list[ModelFinding]
    examples: list[Example]
    """Items that the judge can be shown, each in a mode that its format has. Empty: none, or a part is broken."""
    template: TemplateState | None = None
    special_tokens: SpecialTokens | None = None
    prefix_cache: PrefixCache | None = None
    takes_tools: bool = False

    @property
    def passes(self) -> list[PassName]:
        """The passes to make."""
        if not self.examples:
            return []
        return list(PassName) if self.takes_tools else [PassName.WITHOUT_TOOLS]


async def _parts(local: Judge, examples: Sequence[Example]) -> _Parts:
    engine = local.engine
    if engine.facts.scores:
        return _Parts(findings=await scalar_findings(engine), examples=list(examples))
    template, tokens = await template_state(engine), await special_tokens(engine)
    findings = await format_findings(local)
    shown = [] if any(finding.is_ok is False for finding in findings) else shown_examples(examples, judge=local)
    return _Parts(
        findings=findings,
        examples=shown,
        template=template,
        special_tokens=tokens,
        prefix_cache=await prefix_cache(local, _longest(shown)) if shown else None,
        takes_tools=local.format.traits.takes_tools,
    )


def shown_examples(examples: Sequence[Example], *, judge: Judge) -> list[Example]:
    """Return the items that the format of a judge can show. An item is judged in its own mode if the format has it; otherwise
    as a pair, or one response at a time."""
    shown: list[Example] = []
    for one in examples:
        modes = dict.fromkeys((one.outline.mode or Mode.PAIRWISE, Mode.PAIRWISE, Mode.POINTWISE))
        fitting = [mode for mode in modes if mode is not Mode.PAIRWISE or len(one.responses) == 2]
        mode = next((mode for mode in fitting if judge.format.traits.refusal(_request(one, mode=mode)) is None), None)
        if mode is not None:
            tags = {**one.outline.tags, "mode": mode.value}
            shown.append(replace(one, outline=replace(one.outline, mode=mode, tags=tags)))
    return shown


def _checkup(
    opened: OpenJudge,
    local: Judge,
    *,
    parts: _Parts,
    passes: dict[PassName, SelfcheckPass],
    turns: Sequence[ObservedTurn],
    concurrency: int,
) -> Checkup:
    is_scalar = local.engine.facts.scores
    mass = label_mass_of([one for name, one in passes.items() if name is not PassName.OUTPUTS_REMOVED])
    stops = [] if is_scalar else stop_strings(turns, judge=local)
    is_counted_by_endpoint = any(turn.completion.counted is not None for turn in turns)
    first = next(iter(passes.values()), None)
    return Checkup(
        version=version("tirjudge"),
        model=ExaminedModel(
            name=opened.model,
            address=opened.address or "",
            fingerprint=opened.fingerprint,
            format=None if is_scalar else local.format.name,
            trained_on_format=local.profile.was_trained_on_format,
            context_tokens=None if is_counted_by_endpoint else local.profile.context_tokens,
        ),
        findings=parts.findings,
        template=parts.template,
        special_tokens=parts.special_tokens,
        label_mass=mass,
        stops=stops,
        largest_prompt=max((turn.prompt_tokens for turn in turns if turn.sampling.turn == 0), default=0) or None,
        prefix_cache=parts.prefix_cache,
        speed=None if first is None else _speed(first.figures, concurrency=concurrency),
        items=0 if first is None else first.num_items,
        chance=None if first is None else chance_of(first.marks),
        passes={name.value: each.figures for name, each in passes.items()},
        conclusion=conclude(passes, mass=mass, stops=stops, findings=parts.findings),
    )


def _speed(figures: PassFigures, *, concurrency: int) -> Speed:
    tokens = figures.output_tokens
    return Speed(
        output_tokens_per_s=None if tokens is None else tokens * figures.judgments / figures.wall_s,
        judgments_per_s=figures.judgments / figures.wall_s,
        concurrency=concurrency,
    )


def _say(line: str, *, console: Console) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _longest(examples: Sequence[Example]) -> JudgeRequest:
    """Return the request with the longest texts: a pair if there is one."""
    pairs = [one for one in examples if one.outline.mode is Mode.PAIRWISE] or examples
    longest = max(pairs, key=lambda one: sum(one.outline.lengths))
    return _request(longest, mode=longest.outline.mode or Mode.PAIRWISE)


def _request(one: Example, *, mode: Mode) -> JudgeRequest:
    prompt = one.prompt if isinstance(one.prompt, str) else list(one.prompt)
    return JudgeRequest(mode=mode, prompt=prompt, responses=list(one.responses))
