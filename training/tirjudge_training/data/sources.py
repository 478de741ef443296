"""The ten data sets of the mixture (TIR-Judge, Table 6): locations, licenses, and numbers of items."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace

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


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a source with the same columns."""

    hub: str
    """Repository on the Hugging Face hub."""
    columns: str
    """Required columns, separated by spaces. `a|b`: at least one of the two columns."""
    read: Callable[[Row], TrainingProblem | Rejected]
    """Function that converts a row to a problem."""
    _: KW_ONLY
    name: str = ""
    """Name of its local file or folder. Empty: the name of the source, if this is its only part."""
    config: str | None = None
    """Configuration on the hub. None: the default one. `*`: all; the column `_config` has the configuration of each
    row."""
    split: str = "train"
    """Split on the hub. `*`: all."""
    revision: str = "main"
    """Revision on the hub. With a commit, the rows cannot change. `main` is not pinned; the manifest records this."""
    sampled: bool = False
    """Whether answers to its rows can be sampled."""

    @property
    def is_pinned(self) -> bool:
        """Whether the revision is a commit."""
        return self.revision != "main"


@dataclass(frozen=True, slots=True)
class Source:
    """One data set of the mixture."""

    name: str
    title: str
    parts: tuple[Part, ...]
    wanted: Mapping[Mode, int]
    """Number of items of each mode in the complete mixture."""
    task: str
    licence: str
    """License as stated on the card. `see card`: not checked."""
    rule: str
    """Rule for selecting rows, in one line."""
    _: KW_ONLY
    commercial: bool = True
    """Whether the license allows commercial use, according to the card."""
    verifiable: bool = True
    """Whether a program can decide which response is better. False: the format reward requires no program."""
    confirmed: bool = True
    """Whether repository and license were checked on the public card. False: check them before use."""

    def problem(self, row: Row, *, part: Part) -> TrainingProblem | Rejected:
        """Convert a row to a problem; `Rejected` if the row is broken or not suitable."""
        try:
            found = part.read(row)
        except BrokenRow as error:
            return Rejected(reason=Reason.BROKEN_ROW, detail=str(error))
        except (KeyError, ValueError, TypeError, RecursionError) as error:
            return Rejected(reason=Reason.BROKEN_ROW, detail=f"{type(error).__name__}: {error}")
        if isinstance(found, Rejected):
            return found
        return replace(found, task=self.task, source=self.name, licence=self.licence, verifiable=self.verifiable)


def _wanted(*counts: int) -> Mapping[Mode, int]:
    return dict(zip((Mode.POINTWISE, Mode.PAIRWISE, Mode.LISTWISE), counts, strict=True))


_PREFERENCE = "context response1 response2 overall_preference"
_SAFETY = "prompt response_0 response_1 safer_response_id"
_TULU = (
    Part("allenai/tulu-3-pref-personas-instruction-following", "prompt chosen rejected", tulu_pairs, name="pairs"),
    Part("allenai/RLVR-IFeval", "messages ground_truth", tulu_prompts, name="prompts", sampled=True),
)
_SAMPLED = "responses are sampled, math-verify compares"

_SOURCES = (
    Source(
        "helpsteer3", "HelpSteer3", (Part("nvidia/HelpSteer3", _PREFERENCE, helpsteer3, config="preference"),),
        _wanted(2000, 2000, 0), "helpfulness", "CC-BY-4.0", "preference of 2 or 3, either way", verifiable=False,
    ),
    Source(
        "ultrainteract", "UltraInteract",
        (Part("openbmb/UltraInteract_pair", "task trajectory chosen rejected", ultrainteract),),
        _wanted(2000, 2000, 0), "code", "MIT", "task Coding; the trajectory is the conversation so far",
    ),
    Source(
        "s1", "s1K", (Part("simplescaling/s1K", "question solution", s1, sampled=True),),
        _wanted(250, 250, 0), "reasoning", "see card", f"mathematics with a short answer; {_SAMPLED}", confirmed=False,
    ),
    Source(
        "coderm", "CodeRM-UnitTest",
        (Part("KAKA22/CodeRM-UnitTest", "question code_ground_truth unit_tests", coderm, sampled=True),),
        _wanted(1000, 1000, 472), "code", "Apache-2.0",
        "unit tests that the reference program passes in the sandbox; right is what passes all of them",
    ),
    Source(
        "tulu3-if", "Tulu 3 instruction following", _TULU, _wanted(1500, 1500, 263), "instructions", "ODC-BY",
        "pairs as they are; responses to prompts are sampled, verifier functions decide",
    ),
    Source(
        "math", "MATH", (Part("DigitalLearningGmbH/MATH-lighteval", "problem solution", math, sampled=True),),
        _wanted(1000, 1000, 254), "math", "MIT", f"train split, boxed answer; {_SAMPLED}",
    ),
    Source(
        "dapo-bigmath", "DAPO-Math",
        (Part("open-r1/DAPO-Math-17k-Processed", "prompt solution|answer", dapo, config="en", sampled=True),),
        _wanted(2500, 2500, 282), "math", "Apache-2.0", f"the deduplicated version; {_SAMPLED}",
    ),
    Source(
        "webinstruct", "WebInstruct-verified",
        (Part("TIGER-Lab/WebInstruct-verified", "question answer answer_type category", webinstruct, sampled=True),),
        _wanted(1000, 1000, 91), "reasoning", "see card",
        "no mathematics; numbers, expressions, choices, yes and no; responses are sampled", confirmed=False,
    ),
    Source(
        "loong", "Loong",
        (Part("camel-ai/loong", "question final_answer", loong, config=EVERY, split=EVERY, sampled=True),),
        _wanted(700, 700, 99), "reasoning", "MIT",
        "both splits, not the domain programming; short answers; responses are sampled",
    ),
    Source(
        "saferlhf", "PKU-SafeRLHF", (Part("PKU-Alignment/PKU-SafeRLHF", _SAFETY, saferlhf),), _wanted(500, 500, 0),
        "safety", "CC-BY-NC-4.0", "the safer response is the better one", commercial=False, verifiable=False,
    ),
)  # fmt: skip

SOURCES: Mapping[str, Source] = {
    source.name: replace(source, parts=tuple(replace(part, name=part.name or source.name) for part in source.parts))
    for source in _SOURCES
}


def find_source(name: str) -> Source:
    """Return a source by its name.

    Raises:
        ValueError: the name is unknown.
    """
    if name not in SOURCES:
        raise ValueError(f"source: unknown source {name!r}; the sources are {', '.join(SOURCES)}")
    return SOURCES[name]
