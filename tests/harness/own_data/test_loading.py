"""Files as people have them: which columns are found, which rows are invalid, and what is refused."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tirjudge.types import Mode
from tirjudge_harness.examples import models_of
from tirjudge_harness.items import InputError
from tirjudge_harness.own_data.loading import OwnData, load_own
from tirjudge_harness.own_data.mapping import GivenColumns
from tirjudge_harness.own_data.preview import example_lines, mapping_lines

Load = Callable[..., OwnData]
PAIR = {"prompt": "p", "response_a": "x", "response_b": "y", "winner": "B"}


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads rows that are written in the format of the file's suffix. `columns`: fields of `GivenColumns`."""

    def write(rows: list[dict[str, Any]], *, name: str = "rows.jsonl", **columns: Any) -> OwnData:
        path = tmp_path / name
        if name.endswith(".parquet"):
            pq.write_table(pa.Table.from_pylist(rows), path)
        elif name.endswith(".csv"):
            table = io.StringIO()
            writer = csv.DictWriter(table, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
            path.write_text(table.getvalue())
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return load_own(path, given=GivenColumns(**columns))

    return write


def messages(*texts: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


def test_a_labeled_pair_in_every_format(load: Load) -> None:
    for name in ("rows.jsonl", "rows.csv", "rows.parquet"):
        own = load([PAIR, PAIR | {"prompt": "q", "winner": "A"}], name=name)
        assert (own.columns.layout, own.columns.prompt, own.columns.labels) == ("labeled", ("prompt",), ("winner",))
        first, second = own.examples
        assert (first.prompt, first.responses, first.outline.correct) == ("p", ("x", "y"), (1,))
        assert (second.outline.correct, second.outline.facts["row"]) == ((0,), 2)
        assert own.benchmark.default_mode is Mode.PAIRWISE
        assert own.benchmark.name == name


@pytest.mark.parametrize(
    ("row", "responses"),
    [
        ({"Question": "p", "Response A": "x", "Response B": "y", "Winner": "a"}, ("x", "y")),
        ({"instruction": "p", "answer1": "x", "answer2": "y", "label": 1}, ("x", "y")),
        ({"instruction": "p", "input": "", "output_1": "x", "output_2": "y", "preference": 1}, ("x", "y")),
        ({"prompt": "p", "model_a_response": "x", "model_b_response": "y", "winner": "model_a"}, ("x", "y")),
        ({"prompt": "p", "A": "x", "B": "y", "preferred": "A"}, ("x", "y")),
        ({"query": "p", "completions": ["x", "y", "z"], "best": 0}, ("x", "y", "z")),
        ({"question": "p", "chosen": "x", "rejected": "y", "score_chosen": 8}, ("x", "y")),
        ({"prompt": "p", "chosen": ["x"], "rejected": ["y", "z"]}, ("x", "y", "z")),
        ({"prompt": "p", "chosen": messages("p", "x"), "rejected": messages("p", "y"), "messages": []}, ("x", "y")),
        ({"chosen": messages("p", "x"), "rejected": messages("p", "y")}, ("x", "y")),
        ({"prompt": messages("p"), "chosen": messages("", "x")[1:], "rejected": messages("", "y")[1:]}, ("x", "y")),
        ({"conversation_a": messages("p", "x"), "conversation_b": messages("p", "y"), "winner": "model_a"}, ("x", "y")),
        ({"chosen": "\n\nHuman: p\n\nAssistant: x", "rejected": "\n\nHuman: p\n\nAssistant: y"}, ("x", "y")),
        ({"context": messages("p"), "response1": "x", "response2": "y", "overall_preference": -1}, ("x", "y")),
        ({"id": "i", "prompt": "p", "responses": ["x", "y"], "label": 0, "meta": {}}, ("x", "y")),
    ],
)  # fmt: skip
def test_common_shapes_are_found_by_name(load: Load, row: dict[str, Any], responses: tuple[str, ...]) -> None:
    (found,) = load([row]).examples
    assert (found.prompt, found.responses, found.outline.correct) == ("p", responses, (0,))


def test_a_conversation_of_several_turns_is_the_prompt(load: Load) -> None:
    (found,) = load([{"chosen": messages("a", "b", "c", "x"), "rejected": messages("a", "b", "c", "y")}]).examples
    assert [message.content for message in found.prompt if not isinstance(message, str)] == ["a", "b", "c"]
    assert found.responses == ("x", "y")


def test_json_in_cells_of_a_csv_file_is_read(load: Load) -> None:
    row = {"prompt": "p", "responses": json.dumps(["x", "y"]), "label": "1"}
    (found, _) = load([row, row | {"prompt": "q", "label": "0"}], name="rows.csv").examples
    assert (found.responses, found.outline.correct) == (("x", "y"), (1,))
    cells = {"chosen": json.dumps(messages("p", "x")), "rejected": json.dumps(messages("p", "y"))}
    (found,) = load([cells], name="cells.csv").examples
    assert (found.prompt, found.responses) == ("p", ("x", "y"))


def test_a_response_that_is_json_is_a_text_unless_its_whole_column_is(load: Load) -> None:
    rows = [
        {"prompt": "List two letters as JSON.", "chosen": '["a", "b"]', "rejected": "a, b"},
        {"prompt": "Write a word.", "chosen": "word", "rejected": '[{"role": "user", "content": "x"}]'},
    ]
    own = load(rows)
    assert own.columns.structured == ()
    assert [one.responses for one in own.examples] == [(row["chosen"], row["rejected"]) for row in rows]


def test_a_damaged_cell_makes_its_row_invalid_and_not_its_column_plain_text(load: Load) -> None:
    chats = [[{"role": "system", "content": "s"}, *messages(f"p{n}")] for n in range(5)]
    rows = [{"messages": json.dumps(chat), "chosen": "x", "rejected": "y"} for chat in chats]
    rows[2]["messages"] = rows[2]["messages"][:-3]
    own = load(rows, name="rows.csv")
    assert own.columns.structured == ("messages",)
    assert [len(one.prompt) for one in own.examples] == [2] * 4
    ((number, problem),) = [(bad.number, bad.problem) for bad in own.bad_rows]
    assert number == 3
    assert problem.startswith("messages: expected a JSON list, as in the other rows, but the cell is not JSON (Unterm")
    assert problem.endswith(
        "; correct it, or export the rows as JSONL if it is cut, as Excel does after 32,767 characters"
    )
    lists = [{"prompt": f"p{n}", "responses": json.dumps(["x", "y"]), "label": "BA"[n % 2]} for n in range(4)]
    lists[1]["responses"] = '["x", null]'
    own = load(lists, name="lists.csv")
    assert [one.responses for one in own.examples] == [("x", "y")] * 3
    assert [bad.problem for bad in own.bad_rows] == [
        "responses: expected a JSON list, as in the other rows; the list has other values than texts or messages with a "
        "role and a content"
    ]


def test_a_column_with_another_text_or_mostly_other_lists_is_plain_text(load: Load) -> None:
    chat, other = json.dumps(messages("p")), '[{"city": "Oslo"}]'
    for cells in ((chat, chat, "p"), (chat, other, other)):
        rows = [{"prompt": cell, "chosen": f"x{n}", "rejected": "y"} for n, cell in enumerate(cells)]
        assert [one.prompt for one in load(rows, name="rows.csv").examples] == list(cells)


NOTE = (
    "each JSON list in {} is read as the text of one response; for lists of responses, use a column `responses`, or lists "
    "in a .jsonl file"
)


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
@pytest.mark.parametrize(
    ("columns", "label"),
    [
        (("chosen", "rejected"), {}),
        (("response_a", "response_b"), {"winner": "A"}),
        (("response",), {"score": 1}),
        (("response",), {"label": 0}),
    ],
)
def test_a_response_that_is_a_json_list_of_texts_is_one_response(
    load: Load, name: str, columns: tuple[str, ...], label: dict[str, Any]
) -> None:
    cells = dict(zip(columns, ('["red", "green"]', '["red", "pink", "grey"]'), strict=False))
    own = load([{"prompt": "Return a JSON list with exactly two colors.", **cells, **label}], name=name)
    assert own.bad_rows == []
    assert [one.responses for one in own.examples] == [tuple(cells.values())]
    assert mapping_lines(own)[-1] == f"  note: {NOTE.format(', '.join(map(repr, columns)))}"


def test_json_lists_of_one_text_are_responses_as_they_are(load: Load) -> None:
    row = {"prompt": "List the primes below 3.", "chosen": '["2"]', "rejected": '["2", "3"]'}
    assert load([row], name="rows.csv").examples[0].responses == ('["2"]', '["2", "3"]')


def test_lists_in_a_column_for_one_response_get_the_advice_to_rename_it(load: Load) -> None:
    row = {"prompt": "p", "response": '["x", "y"]'}
    note = NOTE.format("'response'")
    for label, says in (({"winner": "A"}, "no label column found"), ({"label": "A"}, "do not clearly mean a number")):
        with pytest.raises(InputError, match=f"{says}.*; {note}"):
            load([row | label], name="rows.csv")


def test_lists_of_turns_are_unwrapped_if_the_prompts_are_lists_too(load: Load) -> None:
    turns = [(["p0"], ["x0"], ["y0"]), (["p1", "q1"], ["x1", "z"], ["y1", "z"]), (["p2"], ["x2"], ["y2"])]
    columns = ("prompt", "response_a", "response_b")
    rows = [dict(zip(columns, map(json.dumps, row), strict=True)) | {"winner": "model_a"} for row in turns]
    own = load(rows, name="rows.csv")
    assert own.columns.structured == columns
    assert [(one.prompt, *one.responses) for one in own.examples] == [("p0", "x0", "y0"), ("p2", "x2", "y2")]
    assert [bad.problem for bad in own.bad_rows] == ["response_a: expected one response, got a list of 2"]
    assert own.lists == ()
    rated = [{"prompt": row["prompt"], "response": row["response_a"], "score": 1} for row in rows[::2]]
    assert [one.responses for one in load(rated, name="rated.csv").examples] == [("x0",), ("x2",)]


def test_a_pair_of_equal_responses_is_invalid(load: Load) -> None:
    own = load([PAIR, PAIR | {"prompt": "q", "response_a": "y"}])
    assert [bad.problem for bad in own.bad_rows] == [
        "the right response equals a wrong one, so no verdict can be right"
    ]


def test_given_responses_settle_a_file_with_several_families(load: Load) -> None:
    own = load([PAIR | {"answer_a": "c", "answer_b": "d"}], responses=("answer_a", "answer_b"))
    assert own.examples[0].responses == ("c", "d")


def test_labels_of_stanford_human_preferences_are_one_for_the_first_response(load: Load) -> None:
    row = {"history": "p", "human_ref_A": "x", "human_ref_B": "y", "labels": 1}
    assert load([row]).examples[0].outline.correct == (0,)


def test_given_columns_are_used(load: Load) -> None:
    row = {"Frage": "p", "Text": "q", "links": "x", "rechts": "y", "besser": "L", "art": "k", "muster": "m", "nr": 7}
    own = load(
        [row], name="rows.csv", prompt=("Frage", "Text"), responses=("links", "rechts"), labels=("besser",),
        label_values={"L": "A"}, id="nr", subset="art", reference="muster",
    )  # fmt: skip
    (found,) = own.examples
    assert (found.prompt, found.responses, found.reference) == ("p\n\nq", ("x", "y"), "m")
    assert (found.outline.id, found.outline.subset, found.outline.correct) == ("7", "k", (0,))
    assert own.columns.label_values == {"l": "A"}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"prompt": "p", "x": "a", "y": "b"}, "no columns of responses and no label column found; the columns are 'prompt'"),
        ({"text": "p", "chosen": "a", "rejected": "b"}, "no prompt column found; .* give --prompt-column"),
        ({"question": "p", "context": "c", "chosen": "a", "rejected": "b"}, "several columns can be the prompt: 'question'"),
        ({"prompt": "p", "response_a": "a", "response_b": "b"}, "no label column found; .* give --label-column .repeat it"),
        (PAIR | {"label": 1}, "several columns can be the label: 'label', 'winner'"),
        (PAIR | {"chosen": "c", "rejected": "d"}, "several columns can be the responses: 'chosen', 'rejected', 'response_a'"),
        (PAIR | {"answer_a": "c", "answer_b": "d"}, "several columns can be the responses: .*give --response-column"),
        (PAIR | {"winner": 1}, "labels in 'winner' do not clearly mean one of the responses: '1' in 1 rows; .*--label-value"),
        (PAIR | {"winner": True}, "'true' in 1 rows; .*give --label-value VALUE=A"),
        (PAIR | {"winner": None}, "no label column found"),
        ({"prompt": "p", "response": "a", "score": "great"}, "do not clearly mean a number: 'great' in 1 rows"),
        (PAIR | {"subset": "s", "category": "c"}, "several columns can be the value of --subset-column: 'subset'"),
        ({"prompt": "p", "response": "a", "answer": "b", "score": 3}, "'response', 'answer' can each be the response"),
    ],
)  # fmt: skip
def test_unclear_files_are_refused_with_the_columns_and_the_option(load: Load, row: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        load([row])


def test_all_missing_columns_are_named_at_once_with_the_options_to_add(load: Load) -> None:
    row = {"Customer request": "p", "Day": 3, "Old bot": "x", "New bot": "y", "Which": "old"}
    others = [{"Customer request": name, "Old bot": f"old {name}", "New bot": f"new {name}"} for name in "qr"]
    rows = [row, row | others[0] | {"Which": "unsure"}, row | others[1]]
    prompt, responses = "--prompt-column 'Customer request'", "--response-column 'Old bot' --response-column 'New bot'"
    values = "--label-value old=A --label-value 'unsure=.'"
    label = f"--label-column Which {values}"
    named: dict[str, Any] = {"prompt": ("Customer request",), "responses": ("Old bot", "New bot"), "labels": ("Which",)}
    for names, says in (
        (
            (),
            f"no columns of responses, no prompt column and no label column found.*example {prompt} {responses} {label}",
        ),
        (("prompt",), f"no columns of responses and no label column found.*example {responses} {label}"),
        (("prompt", "responses"), f"no label column found.*example {label}"),
        (("labels", "responses"), f"no prompt column found.*example {prompt} {values}"),
    ):
        with pytest.raises(InputError, match=says):
            load(rows, **{name: named[name] for name in names})
    own = load(rows, **named, label_values={"old": "A", "unsure": "tie"})
    assert [one.outline.correct for one in own.examples] == [(0,), (), (0,)]


TICKETS = [
    {
        "ticket": f"T-{i}",
        "Kunde": f"Frage {i}?",
        "Text v1": f"ja {i}",
        "Text v2": f"nein {i}",
        "who": who,
        "notes": note,
    }
    for i, (who, note) in enumerate([("v1", "ok"), ("equal", "ok"), ("v2", "")])
]


def test_guessed_columns_are_neither_ids_nor_notes_and_a_pair_of_names_is_one_of_responses(load: Load) -> None:
    with pytest.raises(InputError, match="example --prompt-column Kunde --label-column who") as caught:
        load(TICKETS)
    assert "label-value" not in str(caught.value)
    own = load(TICKETS, prompt=("Kunde",), labels=("who",))
    assert own.columns.responses == ("Text v1", "Text v2")
    assert [one.outline.correct for one in own.examples] == [(0,), (), (1,)]
    others = [
        {{"Text v1": "old", "Text v2": "new"}.get(name, name): cell for name, cell in row.items()} for row in TICKETS
    ]
    values = r"--label-value 'v1=\?' --label-value 'v2=\?' \(with A, B or tie in place of \?\)"
    with pytest.raises(
        InputError, match=f"--prompt-column Kunde --response-column old .* new --label-column who {values}"
    ):
        load(others)


def test_scores_of_each_response_are_not_an_example_of_a_label(load: Load) -> None:
    rows = [{"prompt": f"p{n}", "response_a": "x", "response_b": "y", "score_a": n, "score_b": 5} for n in range(3)]
    with pytest.raises(InputError, match=r"no label column found; the columns are .*'score_b'; give") as caught:
        load(rows)
    assert "for example" not in str(caught.value)
    with pytest.raises(InputError, match="for example --label-column who"):
        load([row | {"who": "me"} for row in rows])


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"prompt": ("promt",)}, "--prompt-column: no column 'promt'; the columns are 'prompt', 'response_a'"),
        ({"chosen": "response_a"}, "--chosen-column and --rejected-column: give both"),
        ({"responses": ("response_a", "response_a")}, "the column 'response_a' is given twice"),
        ({"label_values": {"B": "2"}}, "--label-value: B=2: a label means a letter or tie; only ratings are numbers"),
        ({"label_values": {"none": "A"}}, "--label-value: 'none' means that a row has no label"),
    ],
)
def test_given_columns_that_do_not_fit_are_refused(load: Load, columns: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        load([PAIR], **columns)


def test_invalid_rows_name_their_row_and_column(load: Load) -> None:
    rows = [
        PAIR,
        PAIR | {"response_b": ""},
        PAIR | {"response_a": "nan"},
        PAIR | {"prompt": ["a", "b"]},
        PAIR | {"response_a": True},
        PAIR | {"winner": "C"},
        PAIR | {"response_b": ["y", "z"]},
        {"prompt": "p"},
        PAIR,
        PAIR | {"response_b": 42},
        PAIR | {"prompt": "q", "winner": "A"},
    ]
    own = load(rows)
    assert [(bad.number, bad.problem) for bad in own.bad_rows] == [
        (2, "response_b: the cell is empty"),
        (3, "response_a: the cell is empty"),
        (4, "prompt: expected one prompt, got a list of 2 texts"),
        (5, "response_a: expected a string, got True"),
        (6, "winner: the meaning of 'c' is not known; give --label-value 'c=A' (or B, tie)"),
        (7, "response_b: expected one response, got a list of 2"),
        (8, "response_a: the cell is empty"),
        (9, f"duplicate of row 1 of {own.bad_rows[0].source}"),
    ]
    assert [one.responses for one in own.examples] == [("x", "y"), ("x", "42"), ("x", "y")]


def test_rows_without_a_label_are_left_out_and_ties_are_not_scored(load: Load) -> None:
    rows = [PAIR, PAIR | {"prompt": "q", "winner": None}, PAIR | {"prompt": "r", "winner": "tie"}]
    own = load(rows)
    assert (len(own.examples), own.num_unlabeled, own.num_ties) == (2, 1, 1)
    tie = own.examples[1].outline
    assert (tie.correct, tie.facts["even"]) == ((), True)
    assert [own.benchmark.compared(tie, mode) for mode in (Mode.PAIRWISE, Mode.LISTWISE)] == [[], []]
    lines = mapping_lines(own)
    assert "  label      winner: 'b' = B, 'tie' = tie" in lines
    assert "  not scored, because the label is a tie or the raters disagree evenly: 1" in lines
    assert "  B (right)  y" in list(example_lines(own.examples))


def test_rows_of_the_common_layout_without_a_right_and_a_wrong_response_are_left_out(load: Load) -> None:
    rows = [
        {"id": n, "prompt": f"p{n}", "responses": ["x", "y"], "label": None, "meta": {"correct": list(correct)}}
        for n, correct in enumerate([(0,), (0, 1), (), (1,)])
    ]
    own = load(rows)
    assert [one.outline.id for one in own.examples] == ["0", "3"]
    assert own.num_unlabeled == 2
    assert "  left out, because the row has no label, no right or no wrong response: 2" in mapping_lines(own)
    with pytest.raises(InputError, match=r"no row of .* is valid and has a label, a right and a wrong response"):
        load(rows[1:3])


def test_several_raters_are_found_and_their_majority_counts(load: Load) -> None:
    row = {"prompt": "p", "response_a": "x", "response_b": "y"}
    votes = [("A", "A", "B"), ("A", "B", ""), ("tie", "B", "B"), ("", "", "")]
    rows = [row | {"prompt": str(n)} | {f"rater_{i}": vote for i, vote in enumerate(v, 1)} for n, v in enumerate(votes)]
    own = load(rows, name="rows.csv")
    assert own.columns.labels == ("rater_1", "rater_2", "rater_3")
    assert [one.outline.correct for one in own.examples] == [(0,), (), (1,)]
    assert [one.outline.facts["raters"] for one in own.examples] == [[0, 0, 1], [0, 1, None], [-1, 1, 1]]
    assert own.num_unlabeled == 1


def test_rows_of_several_raters_are_duplicates_whose_labels_differ(load: Load) -> None:
    advice = "for labels of several raters, write one row with a column for each rater, and repeat --label-column"
    rated = {"prompt": "p", "response": "x"}
    for rows in (
        [PAIR, PAIR, PAIR | {"winner": "A"}, PAIR | {"winner": "tie"}],
        [rated | {"score": score} for score in (3, 3, 4, 5)],
    ):
        own = load(rows)
        same = f"duplicate of row 1 of {own.bad_rows[0].source}"
        other = f"{same}, with another label; {advice}"
        assert [(bad.number, bad.problem) for bad in own.bad_rows] == [(2, same), (3, other), (4, other)]


def test_the_labels_of_a_single_rater_are_found_unless_there_are_other_labels(load: Load) -> None:
    row = {"prompt": "p", "response_a": "x", "response_b": "y", "rater_1": "B"}
    assert load([row]).columns.labels == ("rater_1",)
    assert load([row | {"winner": "A"}]).columns.labels == ("winner",)
    with pytest.raises(InputError, match="several columns can be the label: 'rater_1', 'annotator_1'"):
        load([row | {"annotator_1": "A"}])


def test_ratings_are_read_and_several_raters_are_averaged(load: Load) -> None:
    rows = [{"prompt": "p", "response": f"r{n}", "score": score} for n, score in enumerate((1, 4.5, None, "inf"))]
    own = load(rows)
    assert own.columns.layout == "rated"
    assert [one.outline.facts["rating"] for one in own.examples] == [1.0, 4.5]
    assert own.benchmark.modes == (Mode.POINTWISE,)
    assert [bad.problem for bad in own.bad_rows] == ["score: expected a number, got 'inf'"]
    assert [one.outline.cluster for one in own.examples] == [own.examples[0].outline.id] * 2
    two = load([{"prompt": "p", "response": "r", "first": 1, "second": 4}], labels=("first", "second"))
    assert two.examples[0].outline.facts["rating"] == 2.5
    graded = load([{"question": "p", "answer": "r", "is_correct": True}])
    assert (graded.examples[0].outline.facts["rating"], graded.columns.label_values) == (1.0, {"true": "1"})


def test_ratings_with_a_decimal_comma_get_the_advice_to_write_a_point(load: Load) -> None:
    rows = [{"prompt": "p", "response": f"r{n}", "score": score} for n, score in enumerate(("4", "4,5", "1,2,3"))]
    own = load([*rows, rows[0] | {"response": "r3"}], name="rows.csv")
    assert [bad.problem for bad in own.bad_rows] == [
        "score: expected a number, got '4,5'; write a decimal point: 4.5",
        "score: expected a number, got '1,2,3'",
    ]
    with pytest.raises(
        InputError, match=r"do not clearly mean a number: '4,5' in 1 rows.*; write a decimal point: 4.5$"
    ):
        load(rows[1:], name="rows.csv")


def test_ids_are_those_of_a_unique_column_or_of_the_texts(load: Load) -> None:
    rows = [PAIR | {"id": "one"}, PAIR | {"id": "two", "prompt": "q"}]
    assert [one.outline.id for one in load(rows).examples] == ["one", "two"]
    same = [row | {"id": "one"} for row in rows]
    hashed = [one.outline.id for one in load(same).examples]
    assert len(set(hashed)) == 2
    assert all(len(id) == 16 for id in hashed)
    assert [one.outline.id for one in load(rows[::-1], name="other.jsonl", id="prompt").examples] == ["q", "p"]
    given = load(same, id="id")
    assert ([one.outline.id for one in given.examples], given.num_repeated_ids) == (["one", "one#2"], 1)


def test_ids_do_not_depend_on_the_place_of_a_row(load: Load) -> None:
    rows = [PAIR, PAIR | {"prompt": "q"}]
    first, second = load(rows), load(rows[::-1], name="other.jsonl")
    assert [one.outline.id for one in first.examples] == [one.outline.id for one in second.examples][::-1]


def test_a_mapping_of_an_earlier_run_is_applied_as_it_is(load: Load, tmp_path: Path) -> None:
    own = load([PAIR])
    (tmp_path / "new.jsonl").write_text(json.dumps(PAIR | {"winner": "B", "label": 0}) + "\n")
    assert load_own(tmp_path / "new.jsonl", columns=own.columns).examples[0].outline.correct == (1,)


def test_a_folder_has_parts_like_a_dataset_of_the_hub(load: Load, tmp_path: Path) -> None:
    folder = tmp_path / "set" / "data"
    folder.mkdir(parents=True)
    for name, prompt in (("train-00000-of-00002", "a"), ("train-00001-of-00002", "b"), ("test-00000-of-00001", "c")):
        pq.write_table(pa.Table.from_pylist([PAIR | {"prompt": prompt}]), folder / f"{name}.parquet")
    with pytest.raises(InputError, match="several parts; choose with --part: test, train"):
        load_own(tmp_path / "set")
    own = load_own(tmp_path / "set", parts=["train"])
    assert ([one.prompt for one in own.examples], own.benchmark.name) == (["a", "b"], "set/")
    with pytest.raises(InputError, match="no part 'dev'; choose test, train"):
        load_own(tmp_path / "set", parts=["dev"])
    with pytest.raises(InputError, match="a single file; a folder has parts"):
        load_own(folder / "test-00000-of-00001.parquet", parts=["test"])
    with pytest.raises(InputError, match="no such file or folder"):
        load_own(tmp_path / "missing.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no file of rows in the folder"):
        load_own(tmp_path / "empty")


def test_a_file_without_a_valid_row_is_refused(load: Load) -> None:
    with pytest.raises(InputError, match=r"row 1: response_a: the cell is empty; no row of .* is valid"):
        load([PAIR | {"response_a": ""}], responses=("response_a", "response_b"))
    with pytest.raises(InputError, match="row 1: expected an object, got a list; no row is valid"):
        load([[1]])  # type: ignore[list-item]


def test_rows_of_a_benchmark_get_a_note(load: Load) -> None:
    row = {
        "pair_id": "1",
        "source": "mmlu-pro-math",
        "question": "q",
        "response_A": "x",
        "response_B": "y",
        "label": "A>B",
    }
    own = load([row])
    assert own.looks_like == ["judgebench"]
    assert "`tirjudge bench run judgebench`" in mapping_lines(own)[-1]
    assert load([PAIR]).looks_like == []


def models_in(own: OwnData) -> list[tuple[str, str] | None]:
    return [models_of(one.outline) for one in own.examples]


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        (PAIR | {"Model A": "m", "Model B": "n"}, ("Model A", "Model B")),
        (PAIR | {"generator_1": "m", "generator_2": "n"}, ("generator_1", "generator_2")),
        (
            {"prompt": "p", "responses": ["x", "y"], "label": "A", "model_1": "m", "model_2": "n"},
            ("model_1", "model_2"),
        ),
        (
            {"prompt": "p", "chosen": "x", "rejected": "y", "chosen_model": "m", "rejected_model": "n"},
            ("chosen_model", "rejected_model"),
        ),
    ],
)
def test_columns_that_name_two_models_are_found(load: Load, row: dict[str, Any], columns: tuple[str, str]) -> None:
    own = load([row])
    assert (own.columns.models, models_in(own)) == (columns, [("m", "n")])
    assert f"  models     A = {columns[0]}, B = {columns[1]}" in mapping_lines(own)


def test_columns_of_models_can_be_named(load: Load) -> None:
    rows = [PAIR | {"left": "m", "right": 3}, PAIR | {"left": "m", "right": 4}, PAIR | {"left": "", "right": "n"}]
    own = load(rows, model_a="left", model_b="right")
    assert models_in(own) == [("m", "3"), ("m", "4"), None]
    assert [len(own.benchmark.compared(one.outline, Mode.PAIRWISE)) for one in own.examples] == [1, 1, 1]


def test_pairs_of_named_models_are_judged_if_the_label_is_a_tie(load: Load) -> None:
    named, unnamed = (PAIR | {"winner": "tie", "model_a": name, "model_b": "n"} for name in ("m", ""))
    own = load([PAIR | {"prompt": "q", "model_a": "m", "model_b": "n"}, named, unnamed])
    assert [own.benchmark.compared(one.outline, Mode.PAIRWISE) for one in own.examples] == [[(1, 0)], [(0, 1)], []]
    assert own.num_ties == 2


@pytest.mark.parametrize(
    ("row", "given", "says"),
    [
        (
            PAIR | {"m": "x"},
            {"model_a": "m"},
            r"--model-a-column and --model-b-column: give both, .* got 'm', .* 'response_a'",
        ),
        (
            {"prompt": "p", "response": "x", "score": 1, "m": "a", "n": "b"},
            {"model_a": "m", "model_b": "n"},
            "for rows with two responses; got 'm', 'n', and the responses are in 'response'",
        ),
        (PAIR, {"model_a": "m", "model_b": "n"}, "--model-a-column: no column 'm'"),
        (
            PAIR | {"model_a": "m", "model_b": "n", "model_1": "m", "model_2": "n"},
            {},
            "several columns can be the models: 'model_a', 'model_b', 'model_1', 'model_2'",
        ),
    ],
)
def test_unclear_columns_of_models_are_refused(
    load: Load, row: dict[str, Any], given: dict[str, str], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        load([row], **given)
