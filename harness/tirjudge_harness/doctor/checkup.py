"""Examine a model: open it, look at its parts, and judge the items of `selfcheck` three times."""

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
from tirjudge_harness.doctor.observing import ObservedEngine, ObservedTurn, ToolWithoutOutput
from tirjudge_harness.doctor.passes import PassFigures, PassName, SelfcheckPass, chance_of, run_pass
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
    format: str
    """Name of the prompt format."""
    trained_on_format: bool
    """Whether the checkpoint was trained on the format."""
    context_tokens: int | None
    """Length of the context. None: not known, because a chat endpoint does not tell it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Speed of the pass with tools."""

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
    template: TemplateState
    special_tokens: SpecialTokens
    label_mass: LabelMass | None
    """Over the verdicts with and without tools. None: the engine returns no probabilities."""
    stops: list[StopString]
    largest_prompt: int | None
    """Number of tokens of the longest prompt of the items. None: the endpoint reports no counts."""
    prefix_cache: PrefixCache
    speed: Speed
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
    examples = load(BENCHMARK, data=None, console=console).examples
    template, tokens = await template_state(local.engine), await special_tokens(local.engine)
    cache = await prefix_cache(local, _longest(examples))
    observed = ObservedEngine(local.engine)
    judge = replace(local, engine=observed.engine)
    blind = replace(judge, tools=[ToolWithoutOutput(tool) for tool in judge.tools])
    passes: dict[PassName, SelfcheckPass] = {}
    with TemporaryDirectory(prefix="tirjudge-doctor-") as folder:
        for name in PassName:
            removed = name is PassName.OUTPUTS_REMOVED
            patient = replace(
                opened,
                judge=(blind if removed else judge).judge,
                model=f"{opened.model}, {name.shown}" if removed else opened.model,
            )
            context = RunContext(opened=patient, concurrency=concurrency, console=console)
            _say(f"{len(passes) + 1}/{len(PassName)} {name.shown}", console=console)
            passes[name] = await run_pass(
                name, examples, folder=Path(folder) / name, num_items=num_items, context=context
            )
    return _checkup(
        opened,
        local,
        passes=passes,
        turns=observed.turns,
        template=template,
        special_tokens=tokens,
        prefix_cache=cache,
        concurrency=concurrency,
    )


def _checkup(
    opened: OpenJudge,
    local: Judge,
    *,
    passes: dict[PassName, SelfcheckPass],
    turns: Sequence[ObservedTurn],
    template: TemplateState,
    special_tokens: SpecialTokens,
    prefix_cache: PrefixCache,
    concurrency: int,
) -> Checkup:
    with_tools, without = passes[PassName.WITH_TOOLS], passes[PassName.WITHOUT_TOOLS]
    mass, stops = label_mass_of([with_tools, without]), stop_strings(turns, judge=local)
    is_counted_by_endpoint = any(turn.completion.counted is not None for turn in turns)
    figures = with_tools.figures
    return Checkup(
        version=version("tirjudge"),
        model=ExaminedModel(
            name=opened.model,
            address=opened.address or "",
            fingerprint=opened.fingerprint,
            format=local.format.name,
            trained_on_format=local.profile.was_trained_on_format,
            context_tokens=None if is_counted_by_endpoint else local.profile.context_tokens,
        ),
        template=template,
        special_tokens=special_tokens,
        label_mass=mass,
        stops=stops,
        largest_prompt=max((turn.prompt_tokens for turn in turns if turn.sampling.turn == 0), default=0) or None,
        prefix_cache=prefix_cache,
        speed=Speed(
            output_tokens_per_s=(
                None if figures.output_tokens is None else figures.output_tokens * figures.judgments / figures.wall_s
            ),
            judgments_per_s=figures.judgments / figures.wall_s,
            concurrency=concurrency,
        ),
        items=figures.accuracy.num,
        chance=chance_of(with_tools.marks),
        passes={name.value: each.figures for name, each in passes.items()},
        conclusion=conclude(passes, mass=mass, stops=stops),
    )


def _say(line: str, *, console: Console) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _longest(examples: Sequence[Example]) -> JudgeRequest:
    """Return the request for the pair with the longest texts."""
    pairs = [one for one in examples if one.outline.mode is Mode.PAIRWISE]
    longest = max(pairs, key=lambda one: sum(one.outline.lengths))
    prompt = longest.prompt if isinstance(longest.prompt, str) else list(longest.prompt)
    return JudgeRequest(mode=Mode.PAIRWISE, prompt=prompt, responses=list(longest.responses))
