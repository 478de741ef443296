"""Find the meaning of the columns of a file by their names and values. A file that has two meanings is refused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tirjudge_harness.benchmark import Row
from tirjudge_harness.items import InputError
from tirjudge_harness.neutral import is_neutral
from tirjudge_harness.own_data.cells import Reply, Structure, is_empty, replies_in, structure_of
from tirjudge_harness.own_data.labels import comma_advice, label_value, meanings_of, plain, rating_of
from tirjudge_harness.own_data.mapping import TIE, ColumnMapping, GivenColumns, listed, lists_are_texts
from tirjudge_harness.own_data.missing import example_options, missing

PROMPTS = (
    "prompt", "question", "instruction", "query", "problem", "task", "input", "user_prompt", "user_input", "history",
    "context", "messages",
)  # fmt: skip
"""Normalized names of prompt columns. `prompt` wins over the others."""

PAIRS = (
    ("chosen", "rejected"), ("chosen_response", "rejected_response"), ("response_chosen", "response_rejected"),
    ("preferred", "dispreferred"), ("preferred", "rejected"), ("accepted", "rejected"), ("better", "worse"),
    ("good", "bad"), ("positive", "negative"), ("pos", "neg"),
)  # fmt: skip
"""Normalized names of columns with a right and a wrong response."""

LISTS = ("responses", "completions", "answers", "candidates", "outputs", "generations")
"""Normalized names of columns with lists of responses."""

SINGLE = ("response", "answer", "output", "completion", "reply", "generation", "candidate", "model_output")
"""Normalized names of the column of a single response."""

LABELS = (
    "label", "labels", "winner", "preference", "preferred", "choice", "best", "better", "verdict", "vote", "annotation",
    "chosen", "human_preference", "human_label", "overall_preference", "preference_strength", "better_response_id",
    "preferred_response", "better_response", "correct_response", "a_is_better", "response_a_is_better",
    "model_a_wins", "a_wins",
)  # fmt: skip
"""Normalized names of columns that name the best response."""

RATINGS = (
    "score", "rating", "label", "overall_score", "human_score", "human_rating", "grade", "quality", "is_correct",
    "correct", "helpfulness",
)  # fmt: skip
"""Normalized names of columns that rate a single response."""

IDS = ("id", "uid", "uuid", "example_id", "item_id", "pair_id", "row_id")
SUBSETS = ("subset", "category", "task_type")
MODELS = (
    ("model_a", "model_b"), ("model_1", "model_2"), ("model1", "model2"), ("model_name_a", "model_name_b"),
    ("model_a_name", "model_b_name"), ("response_a_model", "response_b_model"), ("generator_a", "generator_b"),
    ("generator_1", "generator_2"),
)  # fmt: skip
"""Normalized names of columns with the models of the first and the second response."""

MODELS_OF_PAIRS = (("chosen_model", "rejected_model"), ("model_chosen", "model_rejected"))
"""The same for a right and a wrong response."""

REFERENCES = ("reference", "reference_answer", "gold", "gold_answer", "ground_truth", "expected_answer")

_NUMBERED = re.compile(
    r"(response|answer|completion|output|assistant|candidate|reply|generation|conversation|text|model_output|solution|"
    r"summary|translation|option|human_ref|model|)_?(?:v|version_?)?([a-h]|[0-9])"
)
_NUMBERED_FIRST = re.compile(r"(?:model_|assistant_)?([a-h]|[0-9])_(response|answer|completion|output|reply)")
"""Normalized names of one response of several, such as `response_a`, `answer1`, `answer_v1`, `model_b_response`."""

_RATER = re.compile(r"(rater|annotator|labeler)_?(?:[a-h]|[0-9]{1,2})")
"""Normalized names of the label of one rater of several. `label_1` and `score_a` can also be about one response."""

MIN_KNOWN = 0.5
"""Minimum share of the labels whose meaning must be known. The other rows are invalid."""

MIN_READABLE = 0.5
"""Minimum share of the texts of a column that are conversations or JSON lists of texts, if all others begin like such a list.
The rows of the others are invalid."""

MAX_SHOWN_VALUES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTable:
    """The valid rows of a file, and the columns that are not empty."""

    source: str
    """Name of the file, for messages."""
    rows: Sequence[Row]
    columns: tuple[str, ...]
    """All columns."""
    filled: Mapping[str, str]
    """Normalized name -> name of the columns with a value in at least one row."""
    structures: Mapping[str, Structure]
    """Column -> `conversation` or `list`, for the columns whose texts are conversations or JSON lists of texts."""

    @classmethod
    def of(cls, rows: Sequence[Row], *, source: str) -> OwnTable:
        """Return the table of these rows."""
        columns = dict.fromkeys(str(name) for row in rows for name in row)
        empty = set(columns)
        for row in rows:
            empty.difference_update([name for name in empty if not is_empty(row.get(name))])
        filled = {plain(name): name for name in columns if name not in empty}
        found = {name: _structure(row.get(name) for row in rows) for name in filled.values()}
        structures = {name: structure for name, structure in found.items() if structure is not None}
        return cls(source=source, rows=rows, columns=tuple(columns), filled=filled, structures=structures)

    def replies(self, row: Row, columns: Sequence[str]) -> list[Reply]:
        """Return the responses of a row. Empty: a cell is empty or cannot be read."""
        structured = self.structures.keys() - set(filter(self._has_json_texts, columns))
        try:
            return [
                reply
                for column in columns
                for reply in replies_in(row.get(column), column=column, structured=structured)
            ]
        except ValueError:
            return []

    def among(self, names: Iterable[str]) -> list[str]:
        """Return the filled columns with these normalized names, in the order of `names`."""
        return [self.filled[name] for name in names if name in self.filled]

    def refusal(self, problem: str, *, fix: str) -> InputError:
        """Return the error for a file whose columns are not clear."""
        return InputError(f"{self.source}: {problem}; the columns are {listed(self.columns)}; {fix}")

    def missing(self, given: GivenColumns, *, responses: Sequence[str] = (), has_label: bool) -> InputError:
        """Return the error for columns that were not found, all of them, with an example of the options to add.

        Args:
            given: columns that the user named.
            responses: the columns of the responses. Empty: they were not found.
            has_label: whether the label was found, or is not needed.
        """
        has_prompt = bool(given.prompt or self.among(PROMPTS)) or _have_prompts(self, responses)
        roles = {"responses": bool(responses), "prompt": has_prompt, "label": has_label}
        known = {*given.used, *responses, *self.among((*PROMPTS, *LABELS, *RATINGS, *IDS, *SUBSETS, *REFERENCES))}
        free = [column for column in self.filled.values() if column not in known]
        labels = given.labels or self.among(LABELS)
        label = labels[0] if has_label and len(labels) == 1 else None
        options = example_options(self.rows, free, roles=roles, responses=responses, label=label)
        fixes = {
            "responses": "--response-column for each response, or --chosen-column and --rejected-column",
            "prompt": "--prompt-column",
            "label": "--label-column (repeat it if several raters labeled each row)",
        }
        fix = f"give {'; '.join(fixes[role] for role, is_found in roles.items() if not is_found)}"
        if options:
            fix += f"; for example {options}"
        fix += self.list_advice(responses)
        if not has_label:
            fix += ". Without labels, `tirjudge judge FILE` gives verdicts"
        return self.refusal(missing(roles), fix=fix)

    def list_advice(self, responses: Sequence[str]) -> str:
        """Return what to do if a single column has JSON lists of responses that are read as texts. Empty: it has none."""
        return f"; {lists_are_texts(responses)}" if len(responses) == 1 and self._has_json_texts(responses[0]) else ""

    def _has_json_texts(self, column: str) -> bool:
        """Whether a column has JSON lists of texts, and its name is not one of lists of responses."""
        return self.structures.get(column) == "list" and not _is_of_lists(column)

    def check(self, given: GivenColumns) -> None:
        """Raise InputError if a given column does not exist."""
        single = {"--chosen-column": given.chosen, "--rejected-column": given.rejected, "--id-column": given.id}
        single |= {"--subset-column": given.subset, "--reference-column": given.reference}
        single |= {"--model-a-column": given.model_a, "--model-b-column": given.model_b}
        named = [(option, name) for option, name in single.items() if name is not None]
        named += [("--prompt-column", name) for name in given.prompt]
        named += [("--response-column", name) for name in given.responses]
        named += [("--label-column", name) for name in given.labels]
        for option, name in named:
            if name not in self.columns:
                raise self.refusal(f"{option}: no column {name!r}", fix=f"give one of them to {option}")
        twice = [name for name, num in Counter(name for _, name in named).items() if num > 1]
        if twice:
            raise InputError(f"{self.source}: the column {twice[0]!r} is given twice; give each column once")


def find_mapping(table: OwnTable, given: GivenColumns, *, needs_labels: bool = True) -> ColumnMapping:
    """Return the mapping of a file: the given columns, and the others by their names.

    Args:
        table: the rows of the file.
        given: columns that the user named.
        needs_labels: whether unclear labels are an error. False: then the mapping has no labels.

    Raises:
        InputError: a given column does not exist, or the meaning of a column is not clear. The message names the columns of
            the file and the options that make it clear.
    """
    table.check(given)
    if given == GivenColumns() and all(is_neutral(row) and "meta" in row for row in table.rows):
        return ColumnMapping(layout="neutral", prompt=("prompt",), responses=("responses",), id="id")
    layout = _layout(table, given, needs_labels=needs_labels)
    layout = layout.model_copy(update=_texts(table, given, layout=layout))
    layout = layout.model_copy(update={"models": _models(table, given, layout=layout)})
    texts = lists_read_as_texts(table, layout)
    structured = tuple(name for name in table.structures if name in layout.used and name not in texts)
    layout = layout.model_copy(update={"structured": structured})
    if layout.layout == "chosen_rejected" or not layout.labels:
        return layout
    try:
        return _with_labels(table, given, layout=layout)
    except InputError:
        if needs_labels:
            raise
        return layout.model_copy(update={"labels": ()})


def lists_read_as_texts(table: OwnTable, layout: ColumnMapping) -> tuple[str, ...]:
    """Return the columns in which each JSON list of texts is one response, as it is.

    In a single column such as `responses`, they are lists of responses. If the prompts are lists too, a list has one text for
    each turn of a conversation, as in the file of LMSYS's competition on Kaggle.
    """
    has_turns = len(layout.prompt) == 1 and table.structures.get(layout.prompt[0]) == "list"
    if has_turns or (len(layout.responses) == 1 and _is_of_lists(layout.responses[0])):
        return ()
    return tuple(name for name in layout.response_columns if table.structures.get(name) == "list")


def _is_of_lists(column: str) -> bool:
    """Whether a column is named like one of lists of responses."""
    return plain(column) in LISTS


def _layout(table: OwnTable, given: GivenColumns, *, needs_labels: bool) -> ColumnMapping:
    """Return the columns of the responses and of the labels."""
    if given.chosen is not None or given.rejected is not None:
        if given.chosen is None or given.rejected is None or given.responses or given.labels:
            raise InputError(
                "--chosen-column and --rejected-column: give both, without --response-column and --label-column; "
                f"got {', '.join(given.layout_options)}"
            )
        return ColumnMapping(layout="chosen_rejected", chosen=given.chosen, rejected=given.rejected)
    pairs = [pair for first, second in PAIRS if len(pair := table.among((first, second))) == 2]
    numbered = [] if given.responses else _numbered(table)
    lists, single = table.among(LISTS), table.among(SINGLE)
    if not given.layout_options and pairs:
        if len(pairs) > 1 or numbered:
            raise table.refusal(
                f"several columns can be the responses: {listed([*chain(*pairs), *numbered])}",
                fix="give --chosen-column and --rejected-column, or --response-column and --label-column",
            )
        return ColumnMapping(layout="chosen_rejected", chosen=pairs[0][0], rejected=pairs[0][1])
    responses = given.responses or tuple(numbered) or tuple(lists[:1]) or tuple(single)
    if not given.responses and len([found for found in (numbered, lists) if found]) + (len(lists) > 1) > 1:
        raise table.refusal(
            f"several columns can be the responses: {listed([*numbered, *lists])}", fix="give --response-column"
        )
    if not responses:
        has_label = not needs_labels or bool(given.labels or table.among((*LABELS, *RATINGS)))
        raise table.missing(given, has_label=has_label)
    if len(responses) > 1 and responses == tuple(single):
        raise table.refusal(
            f"{listed(responses)} can each be the response",
            fix="give --chosen-column and --rejected-column, or --response-column for each response and --label-column",
        )
    is_list = len(responses) == 1 and _longest(table, responses[0]) > 1
    is_rated = len(responses) == 1 and not is_list
    names = RATINGS if is_rated else LABELS
    labels = given.labels or _found_labels(table, names, given=given, but=responses, needs_labels=needs_labels)
    return ColumnMapping(layout="rated" if is_rated else "labeled", responses=responses, labels=labels)


def _numbered(table: OwnTable) -> list[str]:
    """Return the columns of one response of several. Columns of numbers, such as `score_a`, have other names."""
    families: dict[str, dict[str, str]] = {}
    for name, column in table.filled.items():
        if (match := _NUMBERED.fullmatch(name)) is not None:
            families.setdefault(match[1], {})[match[2]] = column
        elif (match := _NUMBERED_FIRST.fullmatch(name)) is not None:
            families.setdefault(f"first {match[2]}", {})[match[1]] = column
    known = {name: ends for name, ends in families.items() if name != "model" and _are_consecutive(ends)}
    if len(known) > 1:
        found = [column for ends in known.values() for column in ends.values()]
        raise table.refusal(
            f"several columns can be the responses: {listed(found)}", fix="give --response-column for each response"
        )
    return [ends[end] for ends in known.values() for end in sorted(ends)]


def _are_consecutive(ends: Iterable[str]) -> bool:
    """Whether names end in a, b, ..., or in 0, 1, ..., or in 1, 2, ..., at least two of them."""
    found = "".join(sorted(ends))
    return len(found) > 1 and any(every.startswith(found) for every in ("abcdefgh", "0123456789", "123456789"))


def _structure(cells: Iterable[Any]) -> Structure | None:
    """Return what the texts of a column are: `conversation` or `list`. A minority can be damaged. None: plain texts."""
    counted = Counter(structure_of(cell) for cell in cells if isinstance(cell, str) and not is_empty(cell))
    if not counted or None in counted:
        return None
    minimum = MIN_READABLE * counted.total()
    if counted["conversation"] >= minimum:
        return "conversation"
    return "list" if counted["conversation"] + counted["list"] >= minimum else None


def _found_labels(
    table: OwnTable, names: Sequence[str], *, given: GivenColumns, but: Sequence[str], needs_labels: bool
) -> tuple[str, ...]:
    """Return the column of the labels, or one column per rater. Empty: not found, and not needed.

    Raises:
        InputError: no column, or several columns that are not of raters, and labels are needed.
    """
    found = [column for column in table.among(names) if column not in but]
    families: dict[str, list[str]] = {}
    for name, column in table.filled.items():
        if column not in but and (match := _RATER.fullmatch(name)) is not None:
            families.setdefault(match[1], []).append(column)
    # A single `rater_1` is a label only if no other column is: labels of one person so far.
    raters = [columns for columns in families.values() if len(columns) > 1 or not found]
    if len(found) + len(raters) != 1:
        if not needs_labels:
            return ()
        if not found and not raters:
            raise table.missing(given, responses=but, has_label=False)
        raise table.refusal(
            f"several columns can be the label: {listed([*found, *chain(*raters)])}",
            fix="give --label-column; repeat it if several raters labeled each row. Without labels, `tirjudge judge` gives "
            "verdicts",
        )
    return tuple(found or raters[0])


def _texts(table: OwnTable, given: GivenColumns, *, layout: ColumnMapping) -> dict[str, Any]:
    """Return the columns of prompt, id, subset and reference."""
    taken = set(layout.used)

    def only(option: str, own: str | None, names: Sequence[str]) -> str | None:
        found = [column for column in table.among(names) if column not in taken]
        if own is None and len(found) > 1:
            raise table.refusal(f"several columns can be the value of {option}: {listed(found)}", fix=f"give {option}")
        return own or (found[0] if found else None)

    id_column = given.id
    if id_column is None:
        unique = [column for column in table.among(IDS) if column not in taken and _is_unique(table.rows, column)]
        id_column = unique[0] if unique else None
    return {
        "prompt": given.prompt or _prompt(table, given, layout=layout),
        "id": id_column,
        "subset": only("--subset-column", given.subset, SUBSETS),
        "reference": only("--reference-column", given.reference, REFERENCES),
    }


def _models(table: OwnTable, given: GivenColumns, *, layout: ColumnMapping) -> tuple[str, ...]:
    """Return the columns with the models of two responses. Empty: no columns, or not two responses.

    Raises:
        InputError: one of two columns is given, or the columns are not clear.
    """
    named = tuple(name for name in (given.model_a, given.model_b) if name is not None)
    has_pairs = layout.layout == "chosen_rejected" or (layout.layout == "labeled" and len(layout.responses) <= 2)
    if len(named) == 1 or (named and not has_pairs):
        raise InputError(
            f"--model-a-column and --model-b-column: give both, for rows with two responses; got {listed(named)}, and the "
            f"responses are in {listed(layout.response_columns)}"
        )
    if named or not has_pairs:
        return named
    pairs = [table.among(pair) for pair in (MODELS_OF_PAIRS if layout.chosen is not None else MODELS)]
    found = [tuple(pair) for pair in pairs if len(pair) == 2 and not set(pair) & set(layout.used)]
    if len(found) > 1:
        raise table.refusal(
            f"several columns can be the models: {listed([*chain(*found)])}",
            fix="give --model-a-column and --model-b-column",
        )
    return found[0] if found else ()


def _prompt(table: OwnTable, given: GivenColumns, *, layout: ColumnMapping) -> tuple[str, ...]:
    columns = layout.response_columns
    if _have_prompts(table, columns):
        return ()
    found = [column for column in table.among(PROMPTS) if column not in layout.used]
    if not found:
        raise table.missing(given, responses=columns, has_label=True)
    if len(found) > 1 and plain(found[0]) != "prompt":
        raise table.refusal(
            f"several columns can be the prompt: {listed(found)}",
            fix="give --prompt-column; repeat it to join several columns",
        )
    return (found[0],)


def _have_prompts(table: OwnTable, columns: Sequence[str]) -> bool:
    """Whether the responses of the first complete row are conversations of more than one message."""
    for row in table.rows:
        if replies := table.replies(row, columns):
            return all(not isinstance(reply, str) and len(reply) > 1 for reply in replies)
    return False


def _is_unique(rows: Sequence[Row], column: str) -> bool:
    """Whether each row has a different value, which is a text or an integer."""
    values = [row.get(column) for row in rows]
    return all(isinstance(value, str | int) and not is_empty(value) for value in values) and len(set(values)) == len(
        values
    )


def _with_labels(table: OwnTable, given: GivenColumns, *, layout: ColumnMapping) -> ColumnMapping:
    """Return the mapping with the meaning of the label values.

    Raises:
        InputError: the meaning of most labels is not known.
    """
    own = {}
    for value, meaning in (given.label_values or {}).items():
        if (normal := label_value(value)) is None:
            raise InputError(f"--label-value: {value!r} means that a row has no label; give another value")
        if layout.layout != "rated" and not (meaning == TIE or meaning.isalpha()):
            raise InputError(
                f"--label-value: {value}={meaning}: a label means a letter or {TIE}; only ratings are numbers"
            )
        own[normal] = meaning
    counted = _label_counts(table.rows, layout.labels)
    if layout.layout == "rated":
        unknown = [value for value in counted if rating_of(value, given=own) is None]
        known = {value: f"{number:g}" for value in counted if (number := rating_of(value, given=own)) is not None}
        values = {value: meaning for value, meaning in known.items() if not _is_number(value)} | own
        wanted, fix = "a number", "give a numeric --label-column, or --label-value VALUE=NUMBER for each value"
        fix = f"{fix}{comma_advice(unknown)}{table.list_advice(layout.responses)}"
    else:
        listed_in, *others = layout.responses
        width = len(layout.responses) if others else _longest(table, listed_in)
        values = meanings_of(
            counted,
            columns=layout.responses if others else (),
            num_responses=width,
            label_column=layout.labels[0],
            given=own,
        )
        unknown = [value for value in counted if value not in values]
        wanted, fix = "one of the responses", "give --label-value VALUE=A (B, ..., or tie) for each value"
    num_unknown = sum(counted[value] for value in unknown)
    if not counted or num_unknown > (1 - MIN_KNOWN) * counted.total():
        shown = ", ".join(f"{value!r} in {counted[value]} rows" for value in unknown[:MAX_SHOWN_VALUES])
        raise table.refusal(
            f"the labels in {listed(layout.labels)} do not clearly mean {wanted}: {shown or 'all are empty'}", fix=fix
        )
    return layout.model_copy(update={"label_values": values})


def _is_number(value: str) -> bool:
    return rating_of(value, given={}) is not None and not value.isalpha()


def _label_counts(rows: Sequence[Row], columns: Sequence[str]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for row in rows:
        for column in columns:
            try:
                value = label_value(row.get(column))
            except ValueError:
                value = "(a list, an object or a long text)"
            counted.update([] if value is None else [value])
    return counted


def _longest(table: OwnTable, column: str) -> int:
    """Return the maximum number of responses in one row."""
    return max((len(table.replies(row, [column])) for row in table.rows), default=0)
