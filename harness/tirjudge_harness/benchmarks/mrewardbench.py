"""M-RewardBench: the pairs of RewardBench, translated to 23 languages.

The score of a language is the mean of the four sections of RewardBench, and the headline is the mean over languages. The
weights within a section are those of RewardBench, which the official program for judges uses. A tie or a missing verdict
counts as 0.5.
"""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge.right import ScoringRule
from tirjudge.types import Mode
from tirjudge_harness.benchmark import Benchmark, HubSource, Row
from tirjudge_harness.benchmarks.rewardbench import section_means
from tirjudge_harness.columns import conversation, name, text
from tirjudge_harness.examples import Example, example
from tirjudge_harness.metric_tree import Mean
from tirjudge_harness.protocols import Official

LANGUAGES = (
    "arb_Arab", "ces_Latn", "deu_Latn", "ell_Grek", "fra_Latn", "heb_Hebr", "hin_Deva", "ind_Latn", "ita_Latn", "jpn_Jpan",
    "kor_Hang", "nld_Latn", "pes_Arab", "pol_Latn", "por_Latn", "ron_Latn", "rus_Cyrl", "spa_Latn", "tur_Latn", "ukr_Cyrl",
    "vie_Latn", "zho_Hans", "zho_Hant",
)  # fmt: skip
"""Configurations of the data set: FLORES-200 codes of the languages."""


def examples(row: Row, part: str) -> Iterator[Example]:
    """Convert a row to one pair, with the right response first. The translations of a pair are one cluster."""
    number, subset = name(row, "id"), text(row, "subset")
    yield example(
        id=f"{part}/{subset}/{number}",
        prompt=conversation(row, "prompt"),
        responses=(text(row, "chosen"), text(row, "rejected")),
        correct=(0,),
        subset=f"{part}/{subset}",
        cluster=f"{subset}/{number}",
        tags={"language": part},
    )


BENCHMARK = Benchmark(
    name="m-rewardbench",
    title="M-RewardBench",
    citation="arXiv:2410.15522",
    # The full commit hash on the hub is unknown, so no revision is pinned.
    sources={
        language: HubSource(
            id="CohereLabsCommunity/multilingual-reward-bench", config=language, split="test", license="ODC-BY"
        )
        for language in LANGUAGES
    },
    columns=("id", "prompt", "chosen", "rejected", "subset"),
    examples=examples,
    sheet=(
        Mean(
            name="average",
            parts=tuple(Mean(name=language, parts=section_means(prefix=f"{language}/")) for language in LANGUAGES),
        ),
    ),
    official={
        mode: Official(counting=ScoringRule(tie=0.5, no_verdict=0.5)) for mode in (Mode.PAIRWISE, Mode.POINTWISE)
    },
)
