"""The ten data sets of the mixture (TIR-Judge, Table 6): where they lie, their licences, how many items they give."""

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
    """Rows of one shape."""

    hub: str
    """Repository on the Hugging Face hub."""
    columns: str
    """That rows must have, with spaces between them; of `a|b`, one."""
    read: Callable[[Row], TrainingProblem | Rejected]
    _: KW_ONLY
    name: str = ""
    """Of its file or folder where rows are read locally; empty: the source's name, whose only part it is."""
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


@dataclass(frozen=True, slots=True)
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
    _: KW_ONLY
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
    """The source of a name.

    Raises:
        ValueError: there is none.
    """
    if name not in SOURCES:
        raise ValueError(f"source: {name!r} given; there are {', '.join(SOURCES)}")
    return SOURCES[name]
