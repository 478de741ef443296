"""Show how a user's file is read: the meaning of its columns, and its first examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tirjudge.types import label_of, prompt_text
from tirjudge_harness.examples import Example
from tirjudge_harness.own_data.loading import OwnData
from tirjudge_harness.own_data.mapping import TIE, ColumnMapping, lists_are_texts
from tirjudge_harness.own_data.rows import RATING
from tirjudge_harness.sources import one_line

MAX_VALUES = 12
"""Maximum number of label values that are shown."""


def mapping_lines(own: OwnData) -> list[str]:
    """Return lines that say which columns are used, and what is left out."""
    columns = own.columns
    num = len(own.examples)
    lines = [f"{own.benchmark.name}: {num} {'example' if num == 1 else 'examples'}. The columns are read as follows:"]
    lines += [f"  {name:<10} {one_line(meaning)}" for name, meaning in _meanings(columns)]
    for what, num in (
        ("not scored, because the label is a tie or the raters disagree evenly", own.num_ties),
        ("left out, because the row has no label, no right or no wrong response", own.num_unlabeled),
        ("with a suffix such as #2, because the id is repeated", own.num_repeated_ids),
        ("left out, because the row is invalid", len(own.bad_rows)),
    ):
        lines += [f"  {what}: {num}"] if num else []
    if own.lists:
        lines.append(f"  note: {lists_are_texts(own.lists)}")
    if own.looks_like:
        names = " or ".join(own.looks_like)
        lines.append(
            f"  note: the rows look like those of {names}, which has its own rules: `tirjudge bench run {own.looks_like[0]}`"
        )
    return lines


def meaning_line(columns: ColumnMapping) -> str:
    """Return the meaning of the columns in one line."""
    return one_line("; ".join(f"{name}: {meaning}" for name, meaning in _meanings(columns)))


def _meanings(columns: ColumnMapping) -> Iterator[tuple[str, str]]:
    yield "prompt", " + ".join(columns.prompt) or "the messages before the last one of each response"
    if columns.layout == "chosen_rejected":
        yield "right", f"{columns.chosen}"
        yield "wrong", f"{columns.rejected}"
    elif len(columns.responses) > 1:
        yield "responses", ", ".join(f"{label_of(index)} = {name}" for index, name in enumerate(columns.responses))
    else:
        yield "response" if columns.layout == "rated" else "responses", ", ".join(columns.responses)
    if columns.layout == "neutral":
        yield "label", "label, or meta.correct"
        yield "subset", "subset"
    if columns.labels:
        values = [f"{value!r} = {meaning}" for value, meaning in columns.label_values.items()]
        more = [f"{len(values) - MAX_VALUES} more"] if len(values) > MAX_VALUES else []
        shown = ", ".join([*values[:MAX_VALUES], *more])
        names = ", ".join(columns.labels)
        majority = " (majority of the raters)" if len(columns.labels) > 1 and columns.layout == "labeled" else ""
        mean = " (mean of the raters)" if len(columns.labels) > 1 and columns.layout == "rated" else ""
        kind = "rating" if columns.layout == "rated" else "label"
        yield kind, f"{names}{majority}{mean}{': ' if shown else ''}{shown}"
    elif columns.layout in ("labeled", "rated"):
        yield "label", "none is clear"
    yield "id", columns.id or "a hash of the texts"
    if columns.subset is not None:
        yield "subset", columns.subset
    if columns.reference is not None:
        yield "reference", columns.reference
    if columns.models:
        yield "models", ", ".join(f"{label_of(index)} = {name}" for index, name in enumerate(columns.models))


def shown_example(one: Example) -> dict[str, Any]:
    """Return an example as JSON data for a preview."""
    outline = one.outline
    label: Any = [label_of(index) for index in outline.correct] or TIE
    return {
        "id": outline.id,
        "subset": outline.subset,
        "prompt": prompt_text(one.prompt),
        "responses": list(one.responses),
        **({"reference": one.reference} if one.reference is not None else {}),
        **({"rating": outline.facts[RATING]} if RATING in outline.facts else {"right": label}),
        "facts": dict(outline.facts),
    }


def example_lines(examples: Sequence[Example]) -> Iterator[str]:
    """Yield lines for a preview of examples. Long texts are cut."""
    for one in examples:
        shown = shown_example(one)
        head = f"row {one.outline.facts.get('row')}, id {shown['id']}"
        yield head + (f", subset {shown['subset']}" if shown["subset"] else "")
        yield f"  prompt     {one_line(shown['prompt'])}"
        for index, response in enumerate(shown["responses"]):
            right = " (right)" if index in one.outline.correct else ""
            yield f"  {label_of(index)}{right:<9} {one_line(response)}"
        if "rating" in shown:
            yield f"  rating     {shown['rating']:g}"
        elif shown["right"] == TIE:
            yield "  label      tie"
