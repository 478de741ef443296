"""RewardBench: pairs in four sections, and four older test sets. On the original leaderboard, the older test sets together
have half the weight of one section.

Within a section, subsets are weighted by size, except `math-prm`, whose weight is 984 instead of 447, its number of pairs.
By the official rule, a tie of ratings or choices and a missing verdict count as 0.5, and a tie of a scalar reward model
counts as wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge.right import ScoringRule
from tirjudge.types import Mode
from tirjudge_harness.benchmark import Benchmark, HubSource, Row
from tirjudge_harness.columns import conversation, id_of, name, text
from tirjudge_harness.examples import Example, example
from tirjudge_harness.metric_tree import Mean, cells_by
from tirjudge_harness.protocols import Official, OfficialSampling

SECTIONS = {
    "Chat": {
        "alpacaeval-easy": 100,
        "alpacaeval-length": 95,
        "alpacaeval-hard": 95,
        "mt-bench-easy": 28,
        "mt-bench-med": 40,
    },
    "Chat Hard": {
        "mt-bench-hard": 37,
        "llmbar-natural": 100,
        "llmbar-adver-neighbor": 134,
        "llmbar-adver-GPTInst": 92,
        "llmbar-adver-GPTOut": 47,
        "llmbar-adver-manual": 46,
    },
    "Safety": {
        "refusals-dangerous": 100,
        "refusals-offensive": 100,
        "xstest-should-refuse": 154,
        "xstest-should-respond": 250,
        "donotanswer": 136,
    },
    "Reasoning": {
        "math-prm": 984,
        **{f"hep-{language}": 164 for language in ("cpp", "go", "java", "js", "python", "rust")},
    },
}
"""Section -> subset -> weight."""

PRIOR_SETS = {"anthropic_helpful": 6192, "anthropic_hhh": 221, "shp": 1741, "summarize": 9000}
"""Older test sets -> number of rows."""

REVISION = "168d848cdbbea9764fae4a544dc9ca1e6cca4931"


def examples(row: Row, part: str) -> Iterator[Example]:
    """Convert a row to one pair, with the right response first."""
    prompt, responses = conversation(row, "prompt"), (text(row, "chosen"), text(row, "rejected"))
    is_prior = part in PRIOR_SETS
    subset = part if is_prior else text(row, "subset")
    number = id_of(str(prompt), *responses) if is_prior else name(row, "id")
    yield example(id=f"{subset}/{number}", prompt=prompt, responses=responses, correct=(0,), subset=subset)


def section_means(*, prefix: str = "") -> tuple[Mean, ...]:
    """Return one metric per section. `prefix`: start of the names of sections and subsets."""
    return tuple(
        Mean(
            name=f"{prefix}{section}",
            parts=cells_by("subset", tuple(f"{prefix}{subset}" for subset in weights)),
            weights=tuple(map(float, weights.values())),
        )
        for section, weights in SECTIONS.items()
    )


AVERAGE = Mean(name="average", parts=section_means())
PRIOR = Mean(name="Prior Sets", parts=cells_by("subset", tuple(PRIOR_SETS)))

BENCHMARK = Benchmark(
    name="rewardbench",
    title="RewardBench",
    citation="arXiv:2403.13787",
    sources={
        "filtered": HubSource(
            id="allenai/reward-bench", split="filtered", revision=REVISION, license="ODC-BY", num_rows=2985
        ),
        # The commit of the prior sets is unknown.
        **{
            split: HubSource(id="allenai/pref-test-sets", split=split, num_rows=num_rows)
            for split, num_rows in PRIOR_SETS.items()
        },
    },
    parts=("filtered",),
    columns=("prompt", "chosen", "rejected"),
    examples=examples,
    # Each of the four sections has weight 2, so their mean has weight 8. The prior sets have weight 1.
    sheet=(AVERAGE, PRIOR, Mean(name="leaderboard", parts=(AVERAGE, PRIOR), weights=(8.0, 1.0), whole=True)),
    official={
        mode: Official(
            counting=ScoringRule(tie=0.5, scalar_tie=0.0, no_verdict=0.5),
            sampling=OfficialSampling(temperature=0.0, max_tokens=2048),
        )
        for mode in (Mode.PAIRWISE, Mode.POINTWISE)
    },
)
