"""Reading of programs and verdicts in the variants that instruction-tuned models write (`tirjudge/2`)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirjudge.formats.blocks import OUTPUT_FENCE
from tirjudge.formats.tirjudge_2 import FORMAT
from tirjudge.types import PYTHON, Completion, Mode, Outcome, ToolCall, ToolResult

SCORES = tuple(map(str, range(1, 11)))


class NamedTool:
    """A tool that is never run."""

    description = ""

    def __init__(self, name: str) -> None:
        self.name = name

    async def run(self, source: str, *, context: object) -> ToolResult:
        return ToolResult(outcome=Outcome.OK)


def call_in(text: str, *, tools: tuple[str, ...] = (PYTHON,), finish_reason: str = "stop") -> ToolCall | None:
    """Return the call of a turn. A text that ends with the output fence was stopped there."""
    completion = Completion(
        text=text,
        token_ids=(),
        logprobs=(),
        finish_reason="stop" if finish_reason == "stop" else "length",
        stop=OUTPUT_FENCE if text.endswith(OUTPUT_FENCE) else None,
    )
    return FORMAT.read_call(completion, tools=[NamedTool(name) for name in tools])


def source_of(text: str) -> str | None:
    call = call_in(text)
    return None if call is None else call.source


def verdict(*texts: str, mode: Mode = Mode.PAIRWISE) -> str | None:
    """Return the label. Check that it stands at the given place."""
    found = FORMAT.find_verdict(texts, mode=mode, labels=SCORES if mode is Mode.POINTWISE else ("A", "B"))
    if found is None:
        return None
    assert texts[found.turn][found.start :].startswith(found.label)
    return found.label


# -------------------------------------------------------------------------------------------------------------- programs


@pytest.mark.parametrize(
    "opening",
    [
        *("```python", "```py", "```Python", "```python3", "```PY3", "``` python", "```python  ", "```{python}"),
        *("````python", "```python title=check.py", "~~~python"),
    ],
)
def test_a_python_block_has_many_openings(opening: str) -> None:
    fence = opening[0] * (4 if opening.startswith("````") else 3)
    text = f"Let me count.\n{opening}\nprint(1)\n{fence}\n{OUTPUT_FENCE}"
    assert source_of(text) == "print(1)\n"
    call = call_in(text)
    assert call is not None
    assert (call.tool, call.opening) == (PYTHON, "")


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("```python\r\nprint(1)\r\n```\r\n", "print(1)\r\n"),
        ("1. Count:\n   ```python\n   if a:\n       b\n\n   ```\n", "if a:\n    b\n\n"),
        ("```python\nprint(1)\n```output", "print(1)\n"),  # no closing fence
        ("```python\nprint(1)\n", "print(1)\n"),  # at the end of the turn
        ("````python\nx = '''\n```\n'''\n````\n", "x = '''\n```\n'''\n"),
        ("```python\na\n```\n then\n```py\nb\n```\n", "b\n"),
        ("```python\nbroken(\n```python\nprint(1)\n```\n", "print(1)\n"),
        ("```python\nprint('```output')\n```\n", "print('```output')\n"),
        ("```\n```python\nprint(1)\n```\n", "print(1)\n"),
        ("```text\nx\n```\n```python\nprint(1)\n```\n", "print(1)\n"),
    ],
)
def test_programs_are_read(text: str, source: str) -> None:
    assert source_of(text) == source


@pytest.mark.parametrize(
    "text",
    [
        "```\nprint(1)\n```",
        "```pythonic\nprint(1)\n```",
        "```json\n{}\n```",
        "`python`",
        "```python print(1)```",
        "```python\nprint(1)\n```\nSo A is better.",
        "```python\n\n",
        "no program",
    ],
)
def test_a_turn_without_a_program_at_its_end_is_not_a_call(text: str) -> None:
    assert call_in(text) is None


def test_an_interrupted_turn_is_not_a_call() -> None:
    assert call_in("```python\nprint(1)\n```\n", finish_reason="length") is None


def test_an_output_block_without_a_program_is_a_problem() -> None:
    call = call_in(f"I run it.\n{OUTPUT_FENCE}")
    assert call is not None
    assert (call.source, call.problem) == (None, "NoProgram: no closed ```python block before the output block")


def test_other_tools_have_their_own_blocks() -> None:
    call = call_in(f"```Words\na b\n```\n{OUTPUT_FENCE}", tools=("words",))
    assert call is not None
    assert (call.tool, call.source) == ("words", "a b\n")
    problem = call_in(f"```py\na\n```\n{OUTPUT_FENCE}", tools=("words",))
    assert problem is not None
    assert problem.source is None


# -------------------------------------------------------------------------------------------------------------- verdicts


@pytest.mark.parametrize(
    "inside",
    [
        *("A", " A ", "\nA\n", "\r\n A\t", "**A**", "__A__", "*A*", "`A`", '"A"', "'A'", "(A)", "[A]", "[[A]]", "A."),
        *(
            "Response A",
            "response **A**",
            "Answer: A",
            "Final verdict: A",
            "Assistant A",
            "**Response A**",
            "Response [A]",
        ),
        *("Option A.", "Response_A", "\n**Response A**\n", "# A"),
    ],
)
def test_decoration_around_a_label_is_ignored(inside: str) -> None:
    assert verdict(f"So <preference>{inside}</preference>") == "A"


@pytest.mark.parametrize(
    "inside",
    [
        *(
            "",
            "C",
            "a",
            "response_a",
            "A or B",
            "A/B",
            "A > B",
            "A and B",
            "A, B",
            "AB",
            "A is better",
            "not A",
            "Neither",
        ),
        *("Response", "A=1", "the first", "<b>A</b>", "A\u200b", "tie", "A B", "Response A B", "-A", "A?"),
    ],
)
def test_other_texts_are_not_a_verdict(inside: str) -> None:
    assert verdict(f"So <preference>{inside}</preference>") is None


@pytest.mark.parametrize(
    ("inside", "score"),
    [
        *(
            (each, "7")
            for each in ("7", " 7\n", "**7**", "7/10", "7 / 10", "**7**/10", "**7/10**", "7 out of 10", "7.0")
        ),
        *((each, "7") for each in ("Score: 7", "Rating: **7**/10", "[[7]]", "7.", "7.0/10", "Final score: 7/10.0")),
        *((each, "10") for each in ("10", "10/10", "10.0", "10 out of 10.")),
        *(
            (each, None)
            for each in ("", "0", "11", "07", "7.5", "7.05", "7-8", "7 to 8", "-3", "7/5", "7/100", "seven")
        ),
        *((each, None) for each in ("7 8", "7, 8", "70%", "7/10/10", "1 0", "7 out of", "/10", "~7", "7+", "100/10")),
    ],
)
def test_scores_are_whole_numbers_also_out_of_ten(inside: str, score: str | None) -> None:
    assert verdict(f"So <score>{inside}</score>", mode=Mode.POINTWISE) == score


def test_the_last_verdict_counts() -> None:
    assert verdict("<preference>A</preference> no: <preference>**B**</preference>") == "B"
    assert verdict("<preference>A</preference> <preference>C</preference>") is None
    assert verdict("<preference>A</preference>", "well") == "A"
    assert verdict("<preference>", "A</preference>") is None
    assert verdict("<preference>A</score>") is None


@given(st.text(alphabet="AB17/0.* \n`~<>preferencescoreResponse outpython", max_size=200))
def test_any_text_parses_to_an_offered_label_or_none(text: str) -> None:
    assert verdict(text) in (None, "A", "B")
    assert verdict(text, mode=Mode.POINTWISE) in (None, *SCORES)
    call_in(text)
    call_in(text + OUTPUT_FENCE)


@given(st.text(alphabet=st.characters(exclude_characters="`~"), max_size=100))
def test_a_program_without_fences_is_parsed_unchanged(code: str) -> None:
    assert source_of(f"so\n```python\n{code}\n```\n{OUTPUT_FENCE}") == f"{code}\n"
