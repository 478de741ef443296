"""The examples of CONTRIBUTING.md run, and the files that it names exist."""

import re
from pathlib import Path
from typing import Any

import pytest

from tirjudge.control_tokens import FAMILIES
from tirjudge.formats.base import Format
from tirjudge.judge import Judge
from tirjudge.model import EngineOptions
from tirjudge.strategies.base import Contest
from tirjudge.tools.base import ToolContext, ToolOptions
from tirjudge.tools.functions import Offer
from tirjudge.types import JudgeRequest, Mode
from tirjudge_evidence.checks.base import CheckContext, CheckKind, Examined
from tirjudge_harness.benchmark import Benchmark
from tirjudge_sandbox import SandboxPool
from tirjudge_server.dialects import Dialect

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PAIR = JudgeRequest(mode=Mode.PAIRWISE, prompt="p", responses=["a", "b"], tools="off")


def example(group: str) -> Any:
    """The object that the example of an entry point group defines."""
    section = PAGE.split(f"`tirjudge.{group}`\n")[1]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {"__name__": f"contributing_{group}"}
    exec(code[1], names)  # noqa: S102
    return names[group.removesuffix("s").upper() if group != "strategies" else "STRATEGY"]


def test_the_example_of_a_format_renders_a_request() -> None:
    made: Format = example("formats")
    sizes: dict[str, Any] = {"prompt_chars": 99, "response_chars": 99, "control_tokens": FAMILIES}
    assert made.render(PAIR, order=[0, 1], tools=[], **sizes).startswith("Please judge carefully.\n\n")
    assert len(made.sha256) == 64


async def test_the_example_of_a_tool_runs() -> None:
    async with example("tools").open(ToolOptions()) as tool:
        assert (await tool.run("abc", context=ToolContext())).stdout == "ABC"


async def test_the_example_of_a_function_is_called_by_a_program(pool: SandboxPool) -> None:
    async with example("functions").open("") as functions:
        assert (await pool.run("print(double(21))", offer=Offer(functions=functions))).stdout == "42\n"


async def test_the_example_of_a_check_examines_a_response() -> None:
    kind: CheckKind = example("checks")
    settings = kind.settings.model_validate({"name": "length", "kind": "shortest", "least": 3})
    examine = kind.open(settings, CheckContext())
    found = [await examine(Examined(request=PAIR, response=text)) for text in ("abc", "ab")]
    assert [[finding.reason.message for finding in findings] for findings in found] == [[], ["too short"]]


async def test_the_example_of_an_engine_judges() -> None:
    async with example("engines").open("B", EngineOptions()) as model:
        judgment = await Judge(engine=model.engine, profile=model.profile, model=model).judge(PAIR)
    assert judgment.rollouts[0].verdict is not None
    assert judgment.rollouts[0].verdict.label == "B"


async def test_the_example_of_a_strategy_ranks() -> None:
    async def never(mode: Mode, indexes: object) -> Any:
        raise AssertionError("it asks for no judgment")

    results = await example("strategies").rank(Contest(ask=never, responses=["a", "bbb"]))
    assert [result.score for result in results] == [1.0, 3.0]


def test_the_other_examples_have_the_types_of_their_kinds() -> None:
    assert isinstance(example("dialects"), Dialect)
    assert isinstance(example("benchmarks"), Benchmark)
    assert example("trainers").kinds == {"sft"}


@pytest.mark.parametrize(
    "path", sorted({*re.findall(r"`([\w./-]+\.(?:py|sh))`", PAGE), *re.findall(r"\]\(([\w./-]+)\)", PAGE)})
)
def test_every_file_that_the_page_names_exists(path: str) -> None:
    assert (ROOT / path).exists()
