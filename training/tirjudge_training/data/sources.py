"""The ten data sets of the mixture (TIR-Judge, Table 6): where they lie, their licences, how many items they give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tirjudge.types import Mode
from tirjudge_training.data.problems import TrainingProblem
from tirjudge_training.data.quality import Reason, Rejected
from tirjudge_training.data.readers import (
    BrokenRow,
    Row,
    coderm,
    dapo,
    helpsteer3,
    loong,
    math,
    s1,
    saferlhf,
    tulu_pairs,
    tulu_prompts,
    ultrainteract,
    webinstruct,
)

EVERY = "*"
"""All configurations, or all splits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Rows of one shape."""

    name: str
    """Of its file or folder where rows are read locally; of the source's only part, the source's name."""
    hub: str
    """Repository on the Hugging Face hub."""
    columns: tuple[tuple[str, ...], ...]
    """That rows must have; of those in one tuple, any."""
    read: Callable[[Row], TrainingProblem | Rejected]
    config: str | None = None
    """None: the default one. `*`: all, and each row says in `_config` of which it is."""
    split: str = "train"
    """`*`: all."""
    revision: str = "main"
    """A commit, so that the rows stay the same. `main` is not pinned: the manifest says so."""

    sampled: bool = False
    """Whether answers to its rows have to be sampled, or may be sampled besides."""

    @property
    def is_pinned(self) -> bool:
        return self.revision != "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One data set of the mixture."""

    name: str
    title: str
    parts: tuple[Part, ...]
    wanted: Mapping[Mode, int]
    """Items of each mode in the whole mixture."""
    task: str
    licence: str
    """As on its card; `see card` where nobody has looked."""
    rule: str
    """Which rows are kept, in a line."""
    commercial: bool = True
    """Whether the licence allows commercial use, as far as is known."""
    verifiable: bool = True
    """Whether a program can settle which response is better; False: the format reward wants no program."""
    confirmed: bool = True
    """Whether repository and licence were read on the public card; False: to be looked up before they are relied on."""

    def problem(self, row: Row, *, part: Part) -> TrainingProblem | Rejected:
        """What a row holds."""
        try:
            found = part.read(row)
        except BrokenRow as error:
            return Rejected(reason=Reason.BROKEN_ROW, detail=str(error))
        except (KeyError, ValueError, TypeError, RecursionError) as error:
            return Rejected(reason=Reason.BROKEN_ROW, detail=f"{type(error).__name__}: {error}")
        if isinstance(found, Rejected):
            return found
        return replace(found, task=self.task, source=self.name, licence=self.licence, verifiable=self.verifiable)


def _wanted(pointwise: int, pairwise: int, listwise: int) -> Mapping[Mode, int]:
    return {Mode.POINTWISE: pointwise, Mode.PAIRWISE: pairwise, Mode.LISTWISE: listwise}


def _columns(*names: str) -> tuple[tuple[str, ...], ...]:
    """`a|b`: one of them will do."""
    return tuple(tuple(name.split("|")) for name in names)


SOURCES: Mapping[str, Source] = {
    source.name: source
    for source in (
        Source(
            name="helpsteer3",
            title="HelpSteer3",
            parts=(
                Part(
                    name="helpsteer3",
                    hub="nvidia/HelpSteer3",
                    config="preference",
                    columns=_columns("context", "response1", "response2", "overall_preference"),
                    read=helpsteer3,
                ),
            ),
            wanted=_wanted(2000, 2000, 0),
            task="helpfulness",
            licence="CC-BY-4.0",
            verifiable=False,
            rule="preference of 2 or 3, either way",
        ),
        Source(
            name="ultrainteract",
            title="UltraInteract",
            parts=(
                Part(
                    name="ultrainteract",
                    hub="openbmb/UltraInteract_pair",
                    columns=_columns("task", "trajectory", "chosen", "rejected"),
                    read=ultrainteract,
                ),
            ),
            wanted=_wanted(2000, 2000, 0),
            task="code",
            licence="MIT",
            rule="task Coding; the trajectory is the conversation so far",
        ),
        Source(
            name="s1",
            title="s1K",
            parts=(
                Part(
                    name="s1",
                    hub="simplescaling/s1K",
                    columns=_columns("question", "solution"),
                    read=s1,
                    sampled=True,
                ),
            ),
            wanted=_wanted(250, 250, 0),
            task="reasoning",
            licence="see card",
            confirmed=False,
            rule="mathematics with a short answer; responses are sampled, math-verify compares",
        ),
        Source(
            name="coderm",
            title="CodeRM-UnitTest",
            parts=(
                Part(
                    name="coderm",
                    hub="KAKA22/CodeRM-UnitTest",
                    columns=_columns("question", "code_ground_truth", "unit_tests"),
                    read=coderm,
                    sampled=True,
                ),
            ),
            wanted=_wanted(1000, 1000, 472),
            task="code",
            licence="Apache-2.0",
            rule="unit tests that the reference program passes in the sandbox; right is what passes all of them",
        ),
        Source(
            name="tulu3-if",
            title="Tulu 3 instruction following",
            parts=(
                Part(
                    name="pairs",
                    hub="allenai/tulu-3-pref-personas-instruction-following",
                    columns=_columns("prompt", "chosen", "rejected"),
                    read=tulu_pairs,
                ),
                Part(
                    name="prompts",
                    hub="allenai/RLVR-IFeval",
                    columns=_columns("messages", "ground_truth"),
                    read=tulu_prompts,
                    sampled=True,
                ),
            ),
            wanted=_wanted(1500, 1500, 263),
            task="instructions",
            licence="ODC-BY",
            rule="pairs as they are; responses to prompts are sampled, verifier functions decide",
        ),
        Source(
            name="math",
            title="MATH",
            parts=(
                Part(
                    name="math",
                    hub="DigitalLearningGmbH/MATH-lighteval",
                    columns=_columns("problem", "solution"),
                    read=math,
                    sampled=True,
                ),
            ),
            wanted=_wanted(1000, 1000, 254),
            task="math",
            licence="MIT",
            rule="train split, boxed answer; responses are sampled, math-verify compares",
        ),
        Source(
            name="dapo-bigmath",
            title="DAPO-Math",
            parts=(
                Part(
                    name="dapo-bigmath",
                    hub="open-r1/DAPO-Math-17k-Processed",
                    config="en",
                    columns=_columns("prompt", "solution|answer"),
                    read=dapo,
                    sampled=True,
                ),
            ),
            wanted=_wanted(2500, 2500, 282),
            task="math",
            licence="Apache-2.0",
            rule="the deduplicated version; responses are sampled, math-verify compares",
        ),
        Source(
            name="webinstruct",
            title="WebInstruct-verified",
            parts=(
                Part(
                    name="webinstruct",
                    hub="TIGER-Lab/WebInstruct-verified",
                    columns=_columns("question", "answer", "answer_type", "category"),
                    read=webinstruct,
                    sampled=True,
                ),
            ),
            wanted=_wanted(1000, 1000, 91),
            task="reasoning",
            licence="see card",
            confirmed=False,
            rule="no mathematics; numbers, expressions, choices, yes and no; responses are sampled",
        ),
        Source(
            name="loong",
            title="Loong",
            parts=(
                Part(
                    name="loong",
                    hub="camel-ai/loong",
                    config=EVERY,
                    split=EVERY,
                    columns=_columns("question", "final_answer"),
                    read=loong,
                    sampled=True,
                ),
            ),
            wanted=_wanted(700, 700, 99),
            task="reasoning",
            licence="MIT",
            rule="both splits, not the domain programming; short answers; responses are sampled",
        ),
        Source(
            name="saferlhf",
            title="PKU-SafeRLHF",
            parts=(
                Part(
                    name="saferlhf",
                    hub="PKU-Alignment/PKU-SafeRLHF",
                    columns=_columns("prompt", "response_0", "response_1", "safer_response_id"),
                    read=saferlhf,
                ),
            ),
            wanted=_wanted(500, 500, 0),
            task="safety",
            licence="CC-BY-NC-4.0",
            commercial=False,
            verifiable=False,
            rule="the safer response is the better one",
        ),
    )
}


def find_source(name: str) -> Source:
    """The source of a name.

    Raises:
        ValueError: there is none.
    """
    if name not in SOURCES:
        raise ValueError(f"source: {name!r} given; there are {', '.join(SOURCES)}")
    return SOURCES[name]
