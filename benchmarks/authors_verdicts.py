"""Read generated texts with the code of the authors of other judges, for comparison with the declared formats.

    python benchmarks/authors_verdicts.py CHECKOUTS --out tests/judge/other_formats/verdicts.json

CHECKOUTS is as in `authors_prompts.py`, whose warning also applies here: the authors' code runs. The texts are made of the
marks of each format, of parts of marks and of other words. The output has the texts with the authors' verdicts; a test
compares the declared formats with it. Texts whose reading differs on purpose (docs/formats.md) are not generated.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer
from authors_code import checked_out, imported, module_of, package_of, reward_bench_module

from tirjudge.formats import format_named

NUM_TEXTS = 200
"""Number of texts of each format and mode."""

SEED = 5

WORDS = (" ", "\n", "because ", "Answer", ".", "text ", "\n\n", "A", "B", "**")
"""Pieces of every text."""

Reading = Callable[[str], str | None]


def texts(pieces: Sequence[str], *, seed: int = SEED) -> Iterator[str]:
    """Yield texts of one to six pieces."""
    drawn = random.Random(seed)
    for _ in range(NUM_TEXTS):
        yield "".join(drawn.choice(pieces) for _ in range(drawn.randint(1, 6)))


def of_rm_r1(root: Path) -> Iterator[tuple[str, Sequence[str], Reading]]:
    module = reward_bench_module(root / "eval/RM-Bench/rewardbench", "generative")
    pieces = ("[[A]]", "[[B]]", "[[A", "B]]", "<answer>", "</answer>", *WORDS)
    for name, kind in (("rm-r1-instruct", "RM-R1-Instruct"), ("rm-r1-reasoning", "RM-R1-Reasoning")):
        yield f"{name} pairwise", pieces, lambda text, kind=kind: _known(module.process_judgement(text, kind))


def of_reward_bench(root: Path) -> Iterator[tuple[str, Sequence[str], Reading]]:
    first = reward_bench_module(root / "rewardbench", "generative")
    second = reward_bench_module(root / "rewardbench", "generative_v2")

    def rating(text: str) -> str | None:
        second.chat_completion = lambda **given: text
        found = second.get_single_rating("", "", second.OPENAI_MODEL_LIST[0])[0]
        return None if found == -1 else str(found)

    labels = ("[[A]]", "[[B]]", "[[C]]", "[[D]]", "[[E]]", "[[A", "]]", *WORDS)
    yield "reward-bench pairwise", labels, lambda text: _known(first.process_judgement(text, None))
    yield "reward-bench-2 listwise", labels, lambda text: _known(second.process_judgement(text, None))
    yield "reward-bench-2 pointwise", ("9", " 10", "11", "/10", "9.5", " 8 ", "x9", "_7", "\n6", *WORDS), rating


def of_prometheus(root: Path) -> Iterator[tuple[str, Sequence[str], Reading]]:
    parser = module_of(root / "libs/prometheus-eval/prometheus_eval/parser.py")
    scored = (
        "[RESULT] ",
        "[SCORE]",
        "Score: ",
        "score of",
        "(",
        ")",
        "]",
        "/5",
        " out of 5",
        "5",
        "3",
        "6",
        "Result:",
        *WORDS,
    )
    chosen = (
        "[RESULT] ",
        "[RESULT: ",
        "[Response ",
        "[Result] Response ",
        "\nResult: ",
        "Result",
        "]",
        "A",
        "b",
        "B\n",
        *WORDS,
    )

    def score(text: str) -> str | None:
        found = parser._parse_output_absolute(text)[1]
        return None if found is None else f"{1 + 9 * (found - 1) / 4:g}"

    yield "prometheus-2 pointwise", scored, score
    yield "prometheus-2 pairwise", chosen, lambda text: parser._parse_output_relative(text)[1]


def of_arena_hard(root: Path) -> Iterator[tuple[str, Sequence[str], Reading]]:
    module = imported("gen_judgment")
    marks = ("[[A>>B]]", "[[A>B]]", "[[A=B]]", "[[b>a]]", "[[B>>A]]", "[A>B]", "[B>A]", "[[A", "]]", ">")
    verdicts = {"A>>B": "A", "A>B": "A", "A=B": "tie", "B>A": "B", "B>>A": "B"}
    patterns = [r"\[\[([AB<>=]+)\]\]", r"\[([AB<>=]+)\]"]

    def read(text: str) -> str | None:
        return verdicts.get(module.get_score(text, patterns))

    words = [word for word in WORDS if word not in ("A", "B")]
    yield "arena-hard pairwise", (*marks, *words), read


def of_code_judge_bench(root: Path) -> Iterator[tuple[str, Sequence[str], Reading]]:
    package_of("src", root / "src")
    package_of("src.models", root / "src" / "models")
    judge = imported("src.models.pairwise").PairwiseModel

    def read(text: str) -> str | None:
        return judge.extract_response(judge, SimpleNamespace(finish_reason="stop", text=text))["pred"] or None

    marks = ("[[A>B]]", "[[B>A]]", "\\boxed{A>B}", "boxed{B>A}", "[[A=B]]", "[[A>B", "]]")
    yield "codejudgebench pairwise", (*marks, *WORDS), read


def of_judge_lm(root: Path) -> Iterator[tuple[str, Sequence[str], Reading]]:
    for name in ("judgelm", "judgelm.llm_judge"):
        package_of(name, root / name.replace(".", "/"))
    common = imported("judgelm.llm_judge.common")

    def read(text: str) -> str | None:
        first, second = common.parse_score(text.strip())  # the authors' caller strips the text
        if (first, second) == (-1, -1):
            return None
        return "A" if first > second else "B" if first < second else "tie"

    pieces = ("8 7", "6.5 9", "10 10", "\n", "\nbecause", " is", "Score", "5,5")
    yield "judgelm pairwise", pieces, read


def of_rewards(root: Path) -> Iterator[tuple[str, Sequence[str], Reading]]:
    module = module_of(root / "resources_servers/genrm_compare/utils.py")

    def read(text: str) -> str | None:
        try:
            first, second, ranking = module.parse_genrm_output(text, -1, 3.5, raise_on_fail=True)
        except module.GenRMOutputParseError:
            return None
        if -1 in (first, second):
            return None
        return _ranked(first, second, ranking)

    given: list[dict[str, Any]] = [
        {"score_1": 4, "score_2": 2, "ranking": 2},
        {"score_1": 3, "score_2": 3, "ranking": 5},
        {"score_1": 3, "score_2": 3, "ranking": 1},
        {"score_1": 2, "score_2": 2},
        {"overall": {"score_1": 1, "score_2": 5, "ranking": 6}},
        {"other": 1},
    ]
    yield "nemotron-genrm pairwise", (*map(json.dumps, given), *WORDS), read


def _ranked(first: float, second: float, ranking: float) -> str:
    if first != second:
        return "A" if first > second else "B"
    return "tie" if ranking == 3.5 else "A" if ranking < 3.5 else "B"


def _known(label: str) -> str | None:
    return label if label in ("A", "B", "C", "D") else None


READERS = (
    ("rm-r1-instruct", ("eval/RM-Bench/rewardbench",), of_rm_r1),
    ("reward-bench", ("rewardbench",), of_reward_bench),
    ("prometheus-2", ("libs/prometheus-eval/prometheus_eval",), of_prometheus),
    ("arena-hard", ("gen_judgment.py", "utils", "config"), of_arena_hard),
    ("codejudgebench", ("src",), of_code_judge_bench),
    ("judgelm", ("judgelm",), of_judge_lm),
    ("nemotron-genrm", ("resources_servers/genrm_compare",), of_rewards),
)
"""A format, the paths of its authors' code, and the readings."""


def main(
    checkouts: Annotated[Path, typer.Argument(exists=True, help="Folder with the repositories of the authors.")],
    out: Annotated[Path | None, typer.Option(help="File for the verdicts. Default: print them.")] = None,
) -> None:
    """Read the texts with the authors' code, and write them with the verdicts."""
    found: dict[str, list[list[str | None]]] = {}
    for name, paths, readings in READERS:
        source = format_named(name).file.source  # type: ignore[attr-defined]
        with checked_out(checkouts, source.repository, source.commit, *paths) as root:
            for key, pieces, read in readings(root):
                found[key] = [[text, read(text)] for text in dict.fromkeys(texts(pieces))]
                print(f"{key}: {sum(label is not None for _, label in found[key])} verdicts", file=sys.stderr)
    lines = (f"{json.dumps(key)}: {json.dumps(rows)}" for key, rows in found.items())
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    if out is None:
        print(text, end="")
    else:
        out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
