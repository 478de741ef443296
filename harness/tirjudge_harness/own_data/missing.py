"""The error for a file in which a column was not found: all missing columns at once, with the options to add.

The options name columns of the file by a guess from their order and values. They are an example in a message and never used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote

from tirjudge.types import label_of
from tirjudge_harness.benchmark import Row
from tirjudge_harness.own_data.labels import label_value, meanings_of, plain, rating_of
from tirjudge_harness.own_data.mapping import TIE

MAX_LABELS = 6
"""Maximum number of label values in an example."""

UNKNOWN = "?"
"""Meaning of a label value that the user has to fill in."""

MAX_ID_CHARS = 64
"""Maximum length of a value that looks like an id."""


def missing(roles: Mapping[str, bool]) -> str:
    """Return which columns were not found. `roles`: `responses`, `prompt` and `label` -> whether they were found."""
    names = {"responses": "columns of responses", "prompt": "prompt column", "label": "label column"}
    *most, last = [f"no {names[role]}" for role, is_found in roles.items() if not is_found]
    return f"{', '.join(most)} and {last} found" if most else f"{last} found"


def example_options(
    rows: Sequence[Row],
    columns: Sequence[str],
    *,
    roles: Mapping[str, bool],
    responses: Sequence[str],
    label: str | None,
) -> str:
    """Return the options that name the missing columns. Empty: the file has too few other columns.

    Args:
        rows: rows of the file.
        columns: columns without a known meaning, in the order of the file.
        roles: `responses`, `prompt` and `label` -> whether they were found, or are not needed.
        responses: the columns of the responses, if they were found.
        label: the column of the label, if it was found. None: it was not, or it is not needed.
    """
    scores = _scores(rows, columns, responses=responses)
    free = [column for column in columns if column not in scores and not _are_ids(rows, column)]
    options: list[str] = []
    num_texts = (not roles["prompt"]) + 2 * (not roles["responses"])
    if len(free) < num_texts + (not roles["label"]):
        return ""
    likely = None if roles["label"] else _likely_label(rows, free, responses=responses or _alike(free))
    texts = [column for column in free if column != likely and not _are_numbers(rows, column)]
    alike = [] if roles["responses"] else [column for column in _alike(free) if column in texts]
    texts = [*[column for column in texts if column not in alike][: num_texts - len(alike)], *alike][:num_texts]
    if len(texts) < num_texts:
        return ""
    if not roles["prompt"]:
        options.append(f"--prompt-column {quote(texts.pop(0))}")
    options += [f"--response-column {quote(column)}" for column in texts]
    if likely is not None:
        options.append(f"--label-column {quote(likely)}")
    if (named := likely or label) is not None:
        options += _label_values(rows, named, responses=texts or responses)
    is_open = any(option.endswith(f"={UNKNOWN}'") for option in options)
    return " ".join(options) + (f" (with A, B or {TIE} in place of {UNKNOWN})" if is_open else "")


def _alike(columns: Sequence[str]) -> list[str]:
    """Return the first two columns whose names differ only in the letter or digit at the end. Empty: there are none."""
    groups: dict[str, list[str]] = {}
    for column in columns:
        name = plain(column)
        if name[-1:] in "abcdefgh0123456789":
            name = name[:-1].removesuffix("version").removesuffix("v").rstrip("_")
        groups.setdefault(name, []).append(column)
    return next((group[:2] for name, group in groups.items() if name and len(group) > 1), [])


def _scores(rows: Sequence[Row], columns: Sequence[str], *, responses: Sequence[str]) -> list[str]:
    """Return the columns with one number for each response, such as `score_a` and `score_b` of `response_a` and `response_b`.
    A label is about all responses."""
    ends = {plain(response)[-1:] for response in responses}
    groups: dict[str, list[str]] = {}
    for column in columns:
        if column not in responses and _are_numbers(rows, column):
            groups.setdefault(plain(column)[:-1], []).append(column)
    return [column for group in groups.values() if {plain(column)[-1:] for column in group} == ends for column in group]


def _likely_label(rows: Sequence[Row], columns: Sequence[str], *, responses: Sequence[str]) -> str:
    """Return the column whose values most often name a response. Of several, return the one with the fewest different values,
    but more than one, and of these the last one."""
    numbers = {column: len({str(row.get(column)) for row in rows}) for column in columns}
    named = {column: _num_named(rows, column, responses=responses) for column in columns}
    return min(reversed(columns), key=lambda column: (-named[column], numbers[column] == 1, numbers[column]))


def _num_named(rows: Sequence[Row], column: str, *, responses: Sequence[str]) -> int:
    """Return in how many rows the value of a column names a response."""
    try:
        counted = Counter(value for row in rows if (value := label_value(row.get(column))) is not None)
    except ValueError:
        return 0
    known = meanings_of(counted, columns=responses, num_responses=len(responses), label_column=column, given={})
    return sum(num for value, num in counted.items() if value in known)


def _are_ids(rows: Sequence[Row], column: str) -> bool:
    """Whether a column has another short word with a digit in each of three or more rows."""
    values = [str(row.get(column)) for row in rows]
    return len(set(values)) == len(values) > 2 and all(map(_is_id, values))


def _is_id(value: str) -> bool:
    return len(value) <= MAX_ID_CHARS and len(value.split()) == 1 and any(map(str.isdigit, value))


def _are_numbers(rows: Sequence[Row], column: str) -> bool:
    return all(rating_of(str(row.get(column)), given={}) is not None for row in rows)


def _label_values(rows: Sequence[Row], label: str, *, responses: Sequence[str]) -> Iterator[str]:
    """Yield an option for each value of a label column whose meaning is not known."""
    counted: Counter[str] = Counter()
    for row in rows:
        try:
            value = label_value(row.get(label))
        except ValueError:
            return
        counted.update([] if value is None else [value])
    known = meanings_of(counted, columns=responses, num_responses=len(responses), label_column=label, given={})
    unknown = [value for value in counted if value not in known]
    if len(responses) < 2 or len(unknown) > MAX_LABELS:
        return
    for value in unknown:
        named = [label_of(index) for index, name in enumerate(responses) if plain(value) in plain(name).split("_")]
        meaning = named[0] if len(named) == 1 else UNKNOWN
        yield f"--label-value {quote(f'{value}={meaning}')}"
