"""Texts of strangers arrive in a program as they are, whatever is in them."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tirjudge.types import Outcome
from tirjudge_sandbox import SandboxPool

HOSTILE = {
    "quotes": 'it\'s "quoted" and \'\'\'tripled\'\'\' and """too"""',
    "backslashes": "\\ \\n \\x00 \\N{DASH} \\",
    "a program": "'; import os; os._exit(3) #",
    "a template": "{response_b} {{x}} %s $HOME ${HOME}",
    "NUL": "a\0b",
    "line ends": "a\r\nb\rc\u2028d\x0ce\n",
    "half a pair": "x \ud83d y \udc00",
    "json": '{"code": "1/0", "bindings": {}}',
    "empty": "",
    "a megabyte": "0123456789abcdef" * 65_536,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_text_arrives_as_it_is(pool, text):
    digest = "import hashlib; print(len(text), hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest())"
    result = await pool.run(digest, bindings={"text": text})
    here = {}
    exec(digest.replace("print(", "x = ("), {"text": text}, here)  # noqa: S102 - our own line
    assert result.stdout == f"{here['x'][0]} {here['x'][1]}\n"


async def test_any_text_arrives_as_it_is(level):
    async with SandboxPool(slots=1, level=level) as pool:
        for text in sample_texts():
            result = await pool.run("print(ascii(text))", bindings={"text": text})
            assert result.stdout == f"{text!a}\n"


def sample_texts() -> list[str]:
    """Twenty texts of hypothesis's making; it cannot drive a coroutine that outlives one example."""
    texts: list[str] = []

    @settings(max_examples=20, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.text(st.characters(), max_size=50))
    def collect(text: str) -> None:
        texts.append(text)

    collect()
    return texts


async def test_labelled_texts_are_a_dict(pool):
    result = await pool.run("print(responses['B'], list(responses))", bindings={"responses": {"A": "x", "B": "y"}})
    assert result.stdout == "y ['A', 'B']\n"


async def test_a_binding_may_hide_a_builtin_but_nothing_of_ours(pool):
    result = await pool.run(
        "import os\nprint(len, bindings, code)", bindings={"len": "1", "bindings": "2", "code": "3"}
    )
    assert result.stdout == "1 2 3\n"


async def test_printing_half_a_pair_is_no_error(pool):
    result = await pool.run("print(text)", bindings={"text": "a\ud83db"})
    assert (result.outcome, result.stdout) == (Outcome.OK, "a\\ud83db\n")


async def test_half_a_pair_in_the_source_is_the_programs_error(pool):
    result = await pool.run("print('\ud83d')")
    assert result.outcome is Outcome.ERROR
    assert result.error is not None
    assert result.error.startswith("UnicodeEncodeError")


async def test_a_nul_in_the_source_is_the_programs_error(pool):
    assert (await pool.run("print(1)\0")).outcome is Outcome.ERROR


async def test_an_empty_program_prints_nothing(pool):
    assert (await pool.run("")).outcome is Outcome.OK


@pytest.mark.parametrize("name", ["two words", "class", "1st", ""])
async def test_a_name_that_no_variable_can_have_is_our_users_mistake(pool, name):
    with pytest.raises(ValueError, match="bindings"):
        await pool.run("print(1)", bindings={name: "x"})
