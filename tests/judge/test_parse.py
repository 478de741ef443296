"""Parsing of programs and verdicts in the texts of a model."""

from collections.abc import Collection, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirjudge.formats.tirjudge_1 import FORMAT
from tirjudge.types import PYTHON, Completion, Mode, Outcome, ToolResult

AB = ("A", "B")


class NoTool:
    """A tool that is never run."""

    name, description = PYTHON, ""

    async def run(self, source: str, *, context: object) -> ToolResult:
        return ToolResult(outcome=Outcome.OK)


def parse_code(text: str) -> str | None:
    """Return the last program of a turn."""
    blocks = FORMAT.blocks(text, names=(PYTHON,))
    return blocks[-1].source if blocks else None


def asks_for_run(text: str) -> bool:
    """Whether a turn that the model ended is a call."""
    completion = Completion(text=text, token_ids=(), logprobs=(), finish_reason="stop")
    return FORMAT.read_call(completion, tools=[NoTool()]) is not None


def parse_verdict(texts: Sequence[str], *, mode: Mode, labels: Collection[str]) -> str | None:
    """Return the label of the verdict."""
    found = FORMAT.find_verdict(texts, mode=mode, labels=labels)
    return None if found is None else found.label


def verdict(*texts: str, mode: Mode = Mode.PAIRWISE) -> str | None:
    return parse_verdict(texts, mode=mode, labels=AB if mode is not Mode.POINTWISE else [str(i) for i in range(1, 11)])


def test_last_verdict_wins() -> None:
    assert verdict("<preference>A</preference> no: <preference> B </preference>") == "B"


@pytest.mark.parametrize(
    "text", ["<preference>C</preference>", "<preference>a</preference>", "<preference></preference>", "A", ""]
)
def test_a_label_that_was_not_offered_is_not_a_verdict(text: str) -> None:
    assert verdict(text) is None


def test_a_last_verdict_that_was_not_offered_is_not_replaced_by_an_earlier_one() -> None:
    assert verdict("<preference>A</preference> <preference>C</preference>") is None


def test_a_tag_cannot_span_turns() -> None:
    assert verdict("<preference>", "A</preference>") is None
    assert verdict("<preference>A</preference>", "well") == "A"


@pytest.mark.parametrize(
    ("said", "score"), [("10", "10"), ("1", "1"), ("0", None), ("11", None), ("7.5", None), ("-3", None)]
)
def test_scores_are_whole_numbers_from_one_to_ten(said: str, score: str | None) -> None:
    assert verdict(f"<score>{said}</score>", mode=Mode.POINTWISE) == score


def test_the_last_closed_block_is_the_program() -> None:
    assert parse_code("```python\na\n```\n then ```python\nb\n```\n```python\nc\n```\n```output") == "c\n"


def test_a_fence_inside_a_line_does_not_end_the_program() -> None:
    assert parse_code("```python\nprint('```output')\nx = '```'\n```\n```output") == "print('```output')\nx = '```'\n"


@pytest.mark.parametrize("text", ["```python\nprint(1)\n", "```\nprint(1)\n```", "print(1)", "```output"])
def test_an_open_or_unnamed_block_is_not_a_program(text: str) -> None:
    assert parse_code(text) is None


def test_a_turn_that_ends_with_a_closed_block_is_a_call() -> None:
    assert asks_for_run("see\n```python\nprint(1)\n```\n")
    assert not asks_for_run("```python\nprint(1)\n```\nso it is")
    assert not asks_for_run("no program")


@given(st.text(alphabet="AB<>/preference`\n python", max_size=200))
def test_any_text_parses_to_an_offered_label_or_none(text: str) -> None:
    assert verdict(text) in (None, "A", "B")
    parse_code(text)
    asks_for_run(text)


@given(st.text(alphabet=st.characters(exclude_characters="`"), max_size=100), st.text(max_size=50))
def test_a_program_without_fences_is_parsed_unchanged(code: str, before: str) -> None:
    normalised = "".join(f"{line}\n" for line in code.split("\n"))
    if "```python" not in before:
        assert parse_code(f"{before}\n```python\n{normalised}```\n```output") == normalised


def test_an_unclosed_block_does_not_include_the_next_block() -> None:
    assert parse_code("```python\nbroken(\n```python\nprint(1)\n```\n```output") == "print(1)\n"


def test_blocks_with_uppercase_names_and_crlf_are_programs() -> None:
    assert parse_code("```Python\r\nprint(1)\r\n```\r\n```output") == "print(1)\r\n"
