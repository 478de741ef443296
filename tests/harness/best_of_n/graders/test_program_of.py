"""Finding the program in a response."""

from __future__ import annotations

import pytest

from tirjudge_harness.best_of_n.graders.code import program_of

DOUBLE = "def double(x):\n    return 2 * x\n"


@pytest.mark.parametrize(
    ("response", "program"),
    [
        (DOUBLE, DOUBLE),
        (f"Here:\n```python\n{DOUBLE}```\nDone.", DOUBLE),
        (f"Use it so:\n```\nprint(double(2))\n# and so on, and so on\n```\n```py\n{DOUBLE}```", DOUBLE),
        (f"```python\n{DOUBLE}```\nor\n```python\ndef double(x):\n    return x + x\n```", DOUBLE),
        ("```\nx = 1\n```\n```\nx = 1\ny = 2\n```", "x = 1\ny = 2\n"),
        (f"Cut off:\n```python\n{DOUBLE}", DOUBLE),
        ('def double(x):\n    """\n    ```\n    double(2)\n    ```\n    """\n', None),
        ("double = lambda x: 2 * x", None),
    ],
)
def test_the_program_is_found_in_a_response(response: str, program: str | None) -> None:
    assert program_of(response, entry_point="double") == (program or response)
