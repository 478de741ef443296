"""Items that programs decide with the functions of tools: answers with code, and questions that stores answer.

The held-out writer's texts and the held-out worlds are of this project. The other items are made of rows of benchmarks.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from tirjudge.types import Mode
from tirjudge_evidence.tasks.generating import draw_tasks
from tirjudge_training.bundled.measuring.items import MeasuredItem
from tirjudge_training.bundled.measuring.rows import BenchmarkRow, find_benchmark, read_benchmark
from tirjudge_training.instructions.composing import Composer
from tirjudge_training.instructions.responses import response_to
from tirjudge_training.instructions.tool_prompts import (
    ANSWERED_WRITER,
    EXAMPLES,
    HELD_OUT_TOOL_WRITERS,
    FilledLookUp,
    checks_of_task,
    syllables,
    tool_texts,
)
from tirjudge_training.instructions.word_problems import (
    ANSWERED_CALCULATION_WRITER,
    CALCULATIONS,
    HELD_OUT_PROBLEM_WRITERS,
    filled_problem,
    result,
    word_problems,
)
from tirjudge_training.instructions.written import (
    ANSWERED_FORM_WRITERS,
    ANSWERED_REGEX_WRITER,
    HELD_OUT_REGEX_WRITERS,
    HELD_OUT_WRITERS,
    WRITERS,
    written_by,
)
from tirjudge_training.synthetic.numeric import explained, wrong_answer
from tirjudge_training.synthetic.vocabulary import HELD_OUT

NUM_WORLDS = 300
"""Number of questions about generated worlds."""

CODE_BENCHMARKS = ("evalplus", "judgebench", "rewardbench")
"""Benchmarks with requests for Python code."""


def _pair(id: str, group: str, prompt: str, right: str, wrong: str, *, rng: Random, **fields: Any) -> MeasuredItem:
    place = rng.randrange(2)
    return MeasuredItem(
        id=id,
        group=group,
        mode=Mode.PAIRWISE,
        prompt=prompt,
        responses=(wrong, right) if place else (right, wrong),
        right=frozenset({place}),
        **fields,
    )


# Code ---------------------------------------------------------------------------------------------------------------------


def benchmark_code(folder: Path, seed: int) -> Iterator[MeasuredItem]:
    """Yield pairs of a right and a wrong answer with Python code."""
    for name in CODE_BENCHMARKS:
        file = find_benchmark(folder, name)
        for row in [] if file is None else read_benchmark(file):
            right = right_code(row)
            if right is not None:
                rng = Random(f"code/{seed}/{row.id}")
                answers = row.responses[right], row.responses[1 - right]
                yield _pair(row.id, row.subset or name, row.prompt, *answers, rng=rng)


def right_code(row: BenchmarkRow) -> int | None:
    """Return the index of the right one of two answers with Python code; None if the row is another one."""
    correct = row.meta.get("correct")
    if row.subset in ("coding", "hep-python"):
        return row.label if len(row.responses) == 2 else None
    if row.subset in ("humanevalplus", "mbppplus") and isinstance(correct, list) and sorted(correct) == [False, True]:
        return correct.index(True)
    return None


def written_code(folder: Path, seed: int) -> Iterator[MeasuredItem]:
    """Yield the held-out writer's requests for code with a right and a wrong answer."""
    prompts = [text for has_examples, text in tool_texts((ANSWERED_WRITER,)).code if has_examples]
    for answer in written_answers():
        number, rng = answer["number"], Random(f"written-code/{seed}/{answer['number']}")
        answers = answer["right"], answer["wrong"]
        yield _pair(f"written-code:{number}", "code", prompts[number], *answers, rng=rng, asked_call=EXAMPLES)


def written_answers() -> list[dict[str, Any]]:
    """Return a right and a wrong answer for each request for code of the held-out writer that shows examples."""
    text = (WRITERS / ANSWERED_WRITER / "answers.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


# Regular expressions ------------------------------------------------------------------------------------------------------


def written_regexes(folder: Path, seed: int) -> Iterator[MeasuredItem]:
    """Yield the held-out writer's requests for a regular expression, with a right and a wrong answer."""
    composer = Composer(written_by(HELD_OUT_REGEX_WRITERS))
    requests = [one for name in composer.names for one in composer.written.by_name[name]]
    for number, one in enumerate(requests * 3):
        rng = Random(f"written-regexes/{seed}/{number}")
        filled = composer.filled(one, rng=rng)
        wanted = [True] * len(filled.checks)
        failed = [place != number % len(wanted) for place in range(len(wanted))]
        answers = [
            response_to(filled.checks, each, prompt=filled.text, sentences=("A pattern.",) * 6, rng=rng)
            for each in (wanted, failed)
        ]
        if all(answers):
            group = " and ".join(dict.fromkeys(check.name for check in filled.checks))
            yield _pair(f"written-regex:{number}", group, filled.text, *map(str, answers), rng=rng)


def answered_regexes(folder: Path, seed: int) -> Iterator[MeasuredItem]:
    """Yield requests for a regular expression with the right and the wrong answer that their writer gave."""
    for number, rng, one in _lines_of(ANSWERED_REGEX_WRITER, "regexes.jsonl", draws=f"answered-regexes/{seed}"):
        group = " and ".join(name for name in ("matches", "no_match") if one[name])
        yield _pair(f"answered-regex:{number}", group, one["prompt"], one["right"], one["wrong"], rng=rng)


def answered_forms(folder: Path, seed: int) -> Iterator[MeasuredItem]:
    """Yield requests about the form of an answer with the right and the wrong answer that their writers gave."""
    for writer in ANSWERED_FORM_WRITERS:
        for number, rng, one in _lines_of(writer, "forms.jsonl", draws=f"answered-forms/{seed}/{writer}"):
            yield _pair(f"{writer}:{number}", writer, one["prompt"], one["right"], one["wrong"], rng=rng)


def _lines_of(writer: str, name: str, *, draws: str) -> Iterator[tuple[int, Random, Mapping[str, Any]]]:
    """Yield the lines of a file of pairs with right and wrong answers, each with its number and its own random numbers."""
    text = (WRITERS / writer / name).read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines()):
        yield number, Random(f"{draws}/{number}"), json.loads(line)


# Calculations -------------------------------------------------------------------------------------------------------------


def answered_calculations(folder: Path, seed: int) -> Iterator[MeasuredItem]:
    """Yield calculations with the right and the wrong answer that their writer gave, and those of another writer with
    answers from templates."""
    for number, rng, one in _lines_of(ANSWERED_CALCULATION_WRITER, "calculations.jsonl", draws=f"calculations/{seed}"):
        yield _pair(f"calculation:{number}", "own answers", one["prompt"], one["right"], one["wrong"], rng=rng)
    for number, problem in enumerate(word_problems(HELD_OUT_PROBLEM_WRITERS, CALCULATIONS)):
        rng = Random(f"written-calculations/{seed}/{number}")
        prompt, formula = filled_problem(problem, rng=rng)
        answer = result(str(formula), {})
        if answer is not None:
            values = float(answer), wrong_answer(float(answer), rng=rng)
            answers = [explained(value, rng=rng, vocabulary=HELD_OUT) for value in values]
            yield _pair(f"written-calculation:{number}", "templates", prompt, *answers, rng=rng)


# Look-ups -----------------------------------------------------------------------------------------------------------------


def worlds(folder: Path, seed: int) -> Iterator[MeasuredItem]:
    """Yield questions about held-out worlds: tables, graphs and documents with names that training never has."""
    for task in islice(draw_tasks(seed=f"measured-{seed}", held_out=True), NUM_WORLDS):
        checks = checks_of_task(task)
        yield MeasuredItem(
            id=f"world:{task.id}",
            group=task.kind if task.conflict in ("none", "authority") else task.conflict,
            mode=Mode.PAIRWISE,
            prompt=task.question,
            responses=task.responses,
            right=frozenset({task.label}),
            evidence=task.stores,
            asked_call=checks[0] if checks else None,
        )


def written_lookups(folder: Path, seed: int) -> Iterator[MeasuredItem]:
    """Yield the held-out writer's questions, with a store that answers them, a right and a wrong answer."""
    composer = Composer(written_by(HELD_OUT_WRITERS))
    for number, one in enumerate(tool_texts(HELD_OUT_TOOL_WRITERS).lookups):
        if one.function is not None:
            rng = Random(f"written-lookups/{seed}/{number}")
            filled = one.filled(rng, composer)
            store, right, wrong = _answered(filled, column=one.column, rng=rng)
            group = f"{one.function} {len(one.texts) - 1}" if one.column is None else "other word"
            pair = filled.prompt, right, wrong
            yield _pair(f"written:{number}", group, *pair, rng=rng, evidence=(store,), asked_call=filled.checks[0])


def near_misses(folder: Path, seed: int) -> Iterator[MeasuredItem]:
    """Yield the held-out writer's questions and requests for code that no program of the judge can check."""
    composer = Composer(written_by(HELD_OUT_WRITERS))
    texts = tool_texts(HELD_OUT_TOOL_WRITERS)
    drawn: list[tuple[str, Callable[[Random], str]]] = [
        *(
            ("question", lambda rng, one=one: one.filled(rng, composer).prompt)
            for one in texts.lookups
            if not one.function
        ),
        *(("code", lambda rng, text=text: text) for has_examples, text in texts.code if not has_examples),
        *(
            ("word problem", lambda rng, one=one: filled_problem(one, rng=rng)[0])
            for one in word_problems(HELD_OUT_PROBLEM_WRITERS)
        ),
    ]
    for number, (group, draw) in enumerate(drawn):
        rng = Random(f"near-misses/{seed}/{number}")
        prompt = draw(rng)
        answers = rng.sample(composer.sentences, 2)
        values = {"e": syllables(rng, 2, 3), "a": syllables(rng, 2, 3)}
        store = _table({"records": [["name", values["a"]], [values["e"], "3"]]})
        yield _pair(f"near-miss:{number}", group, prompt, *answers, rng=rng, evidence=(store,))


def _answered(asked: FilledLookUp, *, column: str | None, rng: Random) -> tuple[dict[str, Any], str, str]:
    """Return a store that answers a look-up, the right answer and a wrong one. The question may name a column
    with another word."""
    name, *path = asked.texts
    path = path if column is None else [column]
    if asked.function == "of_kind":
        *path, cls = path
        is_in = rng.random() < 0.5
        answers = rng.choice(
            (("Yes.", "No."), ("Yes, it is.", "No, it is not."), ("Yes, that is right.", "No, that is wrong."))
        )
        right, wrong = answers if is_in else answers[::-1]
        return _graph(name, path, cls, is_in=is_in), right, wrong
    drawn = rng.choice((lambda: str(rng.randint(100, 99999)), lambda: syllables(rng, 3, 4)))
    right, wrong = drawn(), drawn()
    said = rng.choice(("{v}", "It is {v}.", f"The {path[-1]} is {{v}}.", f"{name}: {{v}}"))
    tables, key = {}, "name"
    for number, attribute in enumerate(path):
        last = number == len(path) - 1
        value, other = (right, wrong) if last else (syllables(rng, 3, 3), syllables(rng, 3, 3))
        rows = [[name, value, "1"], [syllables(rng, 4, 4), other, "2"]]
        tables[f"table_{number}"] = [[key, attribute, "row"], *rng.sample(rows, 2)]
        name, key = value, attribute
    return _table(tables), said.format(v=right), said.format(v=wrong)


def _table(tables: Mapping[str, Sequence[Sequence[str]]]) -> dict[str, Any]:
    files = []
    for name, rows in tables.items():
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        files.append({"name": f"{name}.csv", "format": "csv", "text": text.getvalue()})
    return {"name": "records", "kind": "table", "files": files}


def _graph(name: str, path: Sequence[str], cls: str, *, is_in: bool) -> dict[str, Any]:
    """Return a graph in which a thing, or what the path leads to from it, is in a class, or in one that excludes it."""
    lines = [
        "@prefix : <urn:records:> .",
        "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .",
        "@prefix owl: <http://www.w3.org/2002/07/owl#> .",
        f":asked a owl:Class ; rdfs:label {json.dumps(cls)} .",
        ':other a owl:Class ; rdfs:label "another class" ; owl:disjointWith :asked .',
        f":thing_0 rdfs:label {json.dumps(name)} .",
    ]
    for number, attribute in enumerate(path):
        local = re.sub(r"\W+", "_", attribute)
        lines.append(
            f':thing_{number} :{local} :thing_{number + 1} . :thing_{number + 1} rdfs:label "Thing {number}" .'
        )
    lines.append(f":thing_{len(path)} a {':asked' if is_in else ':other'} .")
    return {
        "name": "graph",
        "kind": "graph",
        "files": [{"name": "facts.ttl", "format": "turtle", "text": "\n".join(lines)}],
    }
