"""Looks for prompts of benchmarks among the sentences that the judge is trained on.

Two things count as a hit: eight words in a row that a benchmark's prompt has too, and a shorter sentence that equals a
clause of a prompt. For the second, numbers and quotations are left out, because a sentence has slots in their place.
Generic sentences such as "do not use any commas" are hits as well. The report shows all, so that a reader can judge.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from tirjudge_training.bundled.measuring.rows import read_benchmark
from tirjudge_training.bundled.problems import problem_texts
from tirjudge_training.data.decontamination import NUM_WORDS, index_of
from tirjudge_training.instructions import passages, word_problems
from tirjudge_training.instructions.regex_requests import TRAINING_REGEX_WRITERS, regex_requests
from tirjudge_training.instructions.tool_prompts import TRAINING_TOOL_WRITERS, tool_texts
from tirjudge_training.instructions.written import TRAINING_WRITERS, written_by

MIN_WORDS = 3
"""Minimum number of words of a shorter sentence. Fewer words say nothing about where they come from."""

MAX_HITS = 200
"""Maximum number of hits in the report. The counts are complete."""

_VALUE = re.compile(r"\{\w+\}|<<|>>|\"[^\"\n]{1,80}\"|'[^'\n]{1,80}'(?!\w)|\d+")
_CLAUSE = re.compile(r"[.!?;:,\n()]+")


def contamination_report(folder: Path) -> dict[str, Any]:
    """Compare all training sentences with all prompts of the benchmarks in a folder.

    Raises:
        ValueError: a file of rows is not valid.
    """
    files = sorted(file for file in folder.iterdir() if file.name.endswith((".jsonl", ".jsonl.gz")))
    prompts = {file.name.partition(".")[0]: [row.prompt for row in read_benchmark(file)] for file in files}
    texts = dict(training_texts())
    found = {kind: shared_with(prompts, list(kept)) for kind, kept in texts.items()}
    return {
        "benchmarks": {name: len(rows) for name, rows in prompts.items()},
        "texts": {kind: len(kept) for kind, kept in texts.items()},
        "eight_words": {kind: len(hits["eight_words"]) for kind, hits in found.items()},
        "equal_clauses": {kind: len(hits["equal_clauses"]) for kind, hits in found.items()},
        "hits": [
            {"kind": kind, "rule": rule, "benchmark": benchmark, "text": text}
            for kind, hits in found.items()
            for rule, pairs in hits.items()
            for text, benchmark in pairs
        ][:MAX_HITS],
    }


def shared_with(prompts: Mapping[str, list[str]], texts: list[str]) -> dict[str, list[tuple[str, str]]]:
    """Return rule -> texts that share eight words, or a shorter clause, with a prompt, each with the benchmark.

    Args:
        prompts: benchmark -> its prompts.
        texts: training texts.
    """
    index = index_of(prompts)
    nothing = index.grams_of([])
    clauses = {
        clause: name
        for name, rows in reversed(list(prompts.items()))
        for prompt in rows
        for clause in map(_normalized, _CLAUSE.split(_VALUE.sub(" # ", prompt)))
    }
    found: dict[str, list[tuple[str, str]]] = {"eight_words": [], "equal_clauses": []}
    for text in texts:
        words = re.findall(r"\w+", text)
        name = index.found_in([text], exempt=nothing) if len(words) >= NUM_WORDS else None
        if name is not None:
            found["eight_words"].append((text, name))
        clause = _normalized(_VALUE.sub(" # ", text))
        if MIN_WORDS <= clause.count(" ") + 1 < NUM_WORDS and clause in clauses:
            found["equal_clauses"].append((text, clauses[clause]))
    return found


def training_texts() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield kind of text -> all texts of the training writers, and the training sentences of the templates."""
    written = written_by(TRAINING_WRITERS)
    yield "sentences", tuple(dict.fromkeys(one.text for each in written.by_name.values() for one in each))
    yield "prompts", tuple(one.text for one in written.prompts)
    yield "tasks", written.tasks
    yield "soft", written.soft
    yield "facts", written.facts
    tools = tool_texts(TRAINING_TOOL_WRITERS)
    yield "look-ups", tuple(one.text for one in tools.lookups)
    yield "code", tuple(text for _, text in tools.code)
    yield "facts of look-ups", tools.facts
    requests = regex_requests(TRAINING_REGEX_WRITERS)
    yield "requests for regular expressions", tuple(one.text for one in requests)
    stories = word_problems.word_problems(word_problems.TRAINING_PROBLEM_WRITERS)
    yield "word problems", (*(one.text for one in stories), *word_problems.CLOSINGS)
    sums = word_problems.word_problems(word_problems.TRAINING_PROBLEM_WRITERS, word_problems.CALCULATIONS)
    yield "calculations", (*(one.text for one in sums), *word_problems.QUESTIONS)
    yield "problems", tuple(dict.fromkeys(text for texts in problem_texts().values() for text in texts))
    yield "closings of questions", passages.CLOSINGS
    phrasings = resources.files("tirjudge_training.synthetic").joinpath("phrasings.toml").read_text(encoding="utf-8")
    yield "templates", tuple(dict.fromkeys(_training_lines(tomllib.loads(phrasings))))


def _training_lines(node: Any, *, held_out: bool = False) -> Iterator[str]:
    """Yield all texts of a part of the phrasings, except those below `held_out`."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, list):
        for one in node:
            yield from _training_lines(one)
    elif isinstance(node, dict):
        for name, one in node.items():
            if name != "held_out":
                yield from _training_lines(one)


def _normalized(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))
