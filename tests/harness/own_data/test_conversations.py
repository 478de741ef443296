from __future__ import annotations

import json
from typing import Any

import pytest

from tirjudge.types import ChatMessage
from tirjudge_harness.own_data.cells import replies_in, structure_of
from tirjudge_harness.own_data.conversations import conversation_in, prompt_and_responses

USER, ASSISTANT = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}
EXPECTED = (ChatMessage(role="user", content="Hi"), ChatMessage(role="assistant", content="Hello"))


@pytest.mark.parametrize(
    "cell",
    [
        [USER, ASSISTANT],
        json.dumps([USER | {"name": "x"}, ASSISTANT]),
        [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}],
        "\n\nHuman: Hi\n\nAssistant: Hello",
        "Human: Hi\n\nAssistant:Hello\n",
        "\n\nHuman: Hi\n\nAssistant: Hello\n\nAssistant: ",
    ],
)
def test_every_notation_is_the_same_conversation(cell: Any) -> None:
    assert replies_in(cell, column="c", structured=("c",)) == [EXPECTED]
    assert not isinstance(cell, str) or structure_of(cell) == "conversation"
    # In a column of other texts, it is the text of a response.
    assert replies_in(cell, column="c", structured=()) == [cell if isinstance(cell, str) else EXPECTED]


@pytest.mark.parametrize("cell", ["text", "[see below]", "Assistant: alone", "{}", "[" * 100_000, "Human"])
def test_other_texts_are_plain(cell: str) -> None:
    assert structure_of(cell) is None


@pytest.mark.parametrize(
    "cell", ['[{"a": 1}]', "[{broken", "[1]", "[]", '["a", null]', ' [ "a', json.dumps([USER])[:-3]]
)
def test_texts_that_begin_like_a_list_of_texts_or_messages_are_damaged(cell: str) -> None:
    assert structure_of(cell) == "damaged"
    with pytest.raises(ValueError, match="c: expected a JSON list, as in the other rows"):
        replies_in(cell, column="c", structured=("c",))


@pytest.mark.parametrize("value", [[], [{"a": 1}], None, 3, "text", {"role": "user"}])
def test_other_values_are_not_conversations(value: Any) -> None:
    assert conversation_in(value, column="c") is None


def test_a_json_list_of_texts_is_a_list_of_responses() -> None:
    assert structure_of('["x", "y"]') == "list"
    assert replies_in('["x", "y"]', column="c", structured=("c",)) == ["x", "y"]
    with pytest.raises(ValueError, match="c: expected a JSON list, as in the other rows"):
        replies_in("x", column="c", structured=("c",))


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        (
            "[{'role': 'user', 'content': 'Hi'}]",
            "c: a list in Python's notation, not JSON; write the column with json.dumps",
        ),
        ([{"role": "judge", "content": "Hi"}], r"c\[0\]: unknown role 'judge'"),
        ([USER, {"role": "user", "content": [{"type": "image"}]}], r"c\[1\]: the content of the message is not a text"),
    ],
)
def test_unreadable_messages_are_refused_with_the_column(cell: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        replies_in(cell, column="c", structured=("c",))


def test_conversations_are_split_before_their_last_message() -> None:
    other = (EXPECTED[0], ChatMessage(role="assistant", content="Go away"))
    assert prompt_and_responses([EXPECTED, other]) == ((EXPECTED[0],), ("Hello", "Go away"))
    with pytest.raises(ValueError, match="does not end with a message of the assistant"):
        prompt_and_responses([EXPECTED, (EXPECTED[0],)])
    with pytest.raises(ValueError, match="differ before their last message"):
        prompt_and_responses([EXPECTED, (EXPECTED[1],)])
