"""Parts of the bundled judge's programs that call tools: tests of the examples in a prompt, and look-ups in stores."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import pytest
import pytest_asyncio

from tirjudge.tools.functions import CallAccount, Offer
from tirjudge.types import JudgeRequest, Mode
from tirjudge_evidence.functions import EvidenceSettings, Stores, functions_of, open_stores
from tirjudge_evidence.tasks.generating import draw_tasks
from tirjudge_sandbox import SandboxPool
from tirjudge_sandbox.candidates import FUNCTIONS
from tirjudge_training.bundled.measuring.tool_items import written_code, written_lookups
from tirjudge_training.instructions.helpers import SOURCES
from tirjudge_training.instructions.programs import COMPARE, program
from tirjudge_training.instructions.tool_prompts import EXAMPLES, called, checks_of_task

RIGHT = "def add(a, b):\n    return a + b\n"
WRONG = "def add(a, b):\n    return a - b\n"
STRING = r'"(?:[^"\\]|\\.)*"'
PROMPT = "Write a Python function add(a, b).\n>>> add(1, 2)\n3"


in_one_loop = pytest.mark.asyncio(loop_scope="module")
"""Runs a test in the event loop that the pool and the stores of this module belong to."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[SandboxPool]:
    """A real sandbox of two slots that all tests share."""
    async with SandboxPool(slots=2) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stores() -> AsyncIterator[Stores]:
    """Stores that all tests share. None is registered: each query opens the stores of its own request."""
    async with open_stores(EvidenceSettings()) as opened:
        yield opened


async def outcomes(
    pool: SandboxPool,
    check: str,
    *responses: str,
    prompt: str,
    functions: Sequence[Any] = FUNCTIONS,
    evidence: Sequence[Mapping[str, Any]] = (),
) -> list[bool | str]:
    """Return for each response whether it passes a check, or the name of the error that the check raises."""
    source = SOURCES[check.partition("(")[0]]
    program = (
        f"import json\nimport math\nimport re\n{source}\nfor r in responses.values():\n"
        f"    try:\n        print(bool({check}))\n    except Exception as error:\n        print(type(error).__name__)\n"
    )
    request = JudgeRequest.model_validate(
        {"mode": "pairwise", "prompt": prompt, "responses": ["", ""], "evidence": list(evidence) or None}
    )
    bound = {"prompt": prompt, "responses": {str(place): text for place, text in enumerate(responses)}}
    offer = Offer(functions=functions, account=CallAccount(), request=request)
    result = await pool.run(program, bindings=bound, offer=offer)
    return [{"True": True, "False": False}.get(line, line) for line in result.stdout.split()]


def test_no_two_texts_of_programs_define_the_same_name() -> None:
    texts = {*SOURCES.values(), COMPARE.partition("\ndef nearness")[0]}
    defined = Counter(
        name for text in texts for name in re.findall(r"(?m)^(?:def|class) (\w+)|^(\w+)(?:: .*)? = ", text)
    )
    assert [name for name, num in defined.items() if num > 1] == []


# Code ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shown",
    [
        ">>> add(1, 2)\n3",
        "assert add(1, 2) == 3",
        "assert add(1, 2) == 3, 'small'\nassert add(5, 5) == 10",
        "add(1, 2) -> 3",
        "add(1, 2) ==> 3",
        "For example, add(1, 2) should return 3.",
        "`add(1, 2)` returns `3`",
        "e.g. add(1,2)=3",
        "add(1, 2)  # 3",
        "it holds that add(4, 1) is 5 and add(1, 1) is 2",
        "def add(a, b):\n    '''Adds.\n    >>> add(1, 2)\n    3\n    '''",
        "Input: a = 1, b = 2\nOutput: 3",
        "Example 1:\n\n**Input:** a = 1, b = 2\n**Output:** 3\n**Explanation:** 1 and 2 are 3.",
        "Input: a = 2, b = 3 Output: 5",
        "import math\nassert math.isclose(add(0.1, 0.2), 0.3, rel_tol=0.001)",
        "assert set([add(1, 2)]) == {3}\nassert add(2, 2) == 4",
        ">>> x = add(1, 2)\n>>> x\n3\n>>> print(x + 1)\n4",
        "| call | result |\n|---|---|\n| `add(1, 2)` | `3` |",
        "print(add(1, 2))  # Output: 3",
        "i expect add(1, 2) to be 3",
        "when i call add(1,2) i want 3",
        "So add(1, 2) results in 3.",
        "where F(0) = 1, and add(1, 2) gives 0 instead of 3, but it should be that add(2, 2) == 4",
    ],
)
@in_one_loop
async def test_examples_tell_right_code_from_wrong_code(pool: SandboxPool, shown: str) -> None:
    fenced = f"Here you are:\n```python\n{RIGHT}```\nIt adds.\n\nRun it:\n```bash\npython add.py\n```"
    found = await outcomes(pool, EXAMPLES, RIGHT, WRONG, fenced, "No.", prompt=f"Write add(a, b) in Python.\n{shown}")
    assert found == [True, False, True, False]


@pytest.mark.parametrize(
    ("shown", "right", "wrong"),
    [
        (
            "Sample Input 1\n\n2\n\n3\n\nSample Output 1\n\n5\n\nNote\n\nThe sum.",
            "print(int(input()) + int(input()))",
            "print(1)",
        ),
        ("Input:\n```\n2 3\n```\nOutput:\n```\n5\n```", "print(sum(map(int, input().split())))", "print(6)"),
        (
            "Input\n\nThe first line has the integers a and b, as usual.\n\nOutput\n\nPrint their sum on one line.\n\n"
            "Sample Input:\n1 2\n\nSample Output:\n3",
            "import sys\nprint(sum(map(int, sys.stdin.read().split())))",
            "print(4)",
        ),
        ('words("a b") -> {"a", "b"}', "def words(s):\n    return set(s.split())", "def words(s):\n    return s.split()[:1]"),
        ('pair("x") == ("x", "x")', "def pair(x):\n    return x, x", "def pair(x):\n    return x"),
        (
            "class Solution:\n    def twice(self, n)\n\nInput: n = 4\nOutput: 8",
            "class Solution:\n    def twice(self, n):\n        return n + n",
            "class Solution:\n    def twice(self, n):\n        return n",
        ),
        ('odd(3) True / odd(4) False', "def odd(n):\n    return n % 2 == 1", "def odd(n):\n    return True"),
        ("Write `half(n: int) -> float`.\n>>> half(3)\n1.5", "    return n / 2", "    return n // 2"),
        ("power(2, 5, 10) == 2", "def power(a, b, m):\n    return pow(a, b, m)", "def power(a, b, m):\n    return b"),
        ("Input: [1, 2]\nOutput: 3", "def add(x):\n    return sum(x)\n\nThat is O(n).", "def add(x):\n    return x"),
        (
            "inputCopy\n8\noutputCopy\nYES\ninputCopy\n5\noutputCopy\nNO",
            "```\nprint('NO' if int(input()) % 2 else 'YES')\n```",
            "print('YES')",
        ),
        (
            ">>> check(1)\nTraceback (most recent call last):\n  ...\nValueError: odd\n>>> check(2)\n2",
            "1. Like this:\n\n   ```python\n   def check(n):\n       if n % 2:\n"
            "           raise ValueError('odd')\n       return n\n   ```",
            "def check(n):\n    return n",
        ),
        (
            "assert abs(area(1) - 3.1416) < 1e-3\nassert undo(undo(2)) == 2",
            "```python\n# at first\ndef area(r):\n    return 3\n```\n```python\ndef area(r):\n    return 3.1416 * r * r\n\n"
            "def undo(n):\n    return -n\n```\n```python\nprint(area(undo(missing)))\n"
            "print(area(2))\nprint(area(3), area(4), area(5))\n```",
            "def area(r):\n    return 3.1416\n\ndef undo(n):\n    return n + 1",
        ),
    ],
)  # fmt: skip
@in_one_loop
async def test_examples_of_other_kinds(pool: SandboxPool, shown: str, right: str, wrong: str) -> None:
    assert await outcomes(pool, EXAMPLES, right, wrong, prompt=f"In Python.\n{shown}") == [True, False]


@pytest.mark.parametrize(
    "prompt",
    [
        "Write a Python function add(a, b) that adds two numbers.",
        "Write a C++ function `int add(int a, int b)`.\n>>> add(1, 2)\n3",
        "What does add(a, b) do?",
        "",
    ],
)
@in_one_loop
async def test_a_prompt_without_usable_examples_is_not_checked(pool: SandboxPool, prompt: str) -> None:
    assert await outcomes(pool, EXAMPLES, RIGHT, WRONG, prompt=prompt) == ["ValueError"] * 2


@pytest.mark.parametrize(
    "attack",
    [
        "print(True)\nimport os\nos._exit(0)",
        "def add(a, b):\n    import os\n    print(3)\n    os._exit(0)",
        "class Same:\n    def __eq__(self, other):\n        return True\ndef add(a, b):\n    return Same()",
        "def add(a, b):\n    raise SystemExit(0)",
        "import builtins\nbuiltins.all = lambda x: True\ndef add(a, b):\n    return 4",
        "def add(a, b):\n    return '3'",
        "def add(a, b):\n    return True + 2 == 3",
        "```js\nfunction add(a, b) { return a + b }\n```",
        "import a_missing_module\ndef add(a, b):\n    return a + b",
        "def add(a, b:\n    return a + b",
        '"""```python\ndef add(a, b): return 4\n',
        "",
    ],
)
@in_one_loop
async def test_a_response_neither_passes_nor_keeps_others_from_being_checked(pool: SandboxPool, attack: str) -> None:
    assert await outcomes(pool, EXAMPLES, attack, RIGHT, prompt=PROMPT) == [False, True]


@pytest.mark.parametrize("attack", ["", "print(1)", "import math\nmath.factorial(5)", "```js\nfactorial(5)\n```"])
@in_one_loop
async def test_what_the_usual_imports_have_must_be_written(pool: SandboxPool, attack: str) -> None:
    right = "def factorial(n):\n    return n * factorial(n - 1) if n else 1"
    assert await outcomes(pool, EXAMPLES, attack, right, prompt="Python: factorial(5) -> 120") == [False, True]


@pytest.mark.parametrize(
    "text",
    ["add(" * 9000, " " * 40_000 + "x", "```" * 12_000, "input: " * 6000, "class Solution\n" * 3000, "(" * 40_000],
)  # fmt: skip
@in_one_loop
async def test_large_texts_are_bounded_work(pool: SandboxPool, text: str) -> None:
    assert await outcomes(pool, EXAMPLES, text, RIGHT, prompt=PROMPT) == [False, True]
    assert await outcomes(pool, EXAMPLES, RIGHT, prompt=f"{PROMPT}\n{text}") == [True]


@in_one_loop
async def test_the_program_fails_without_the_tool(pool: SandboxPool) -> None:
    assert await outcomes(pool, EXAMPLES, RIGHT, WRONG, prompt=PROMPT, functions=()) == ["NameError"] * 2


@pytest.mark.slow  # sixty pairs, each with a process for each case
@in_one_loop
async def test_examples_decide_the_pairs_of_the_held_out_writer(pool: SandboxPool) -> None:
    wrong = []
    for item in written_code(Path(), 1):
        found = await outcomes(pool, EXAMPLES, *item.responses, prompt=item.prompt)
        if found != [place in item.right for place in range(2)]:
            wrong.append(item.id)
    assert len(wrong) <= 2, wrong


# Look-ups -----------------------------------------------------------------------------------------------------------------

CUSTOMERS = (
    "customer,amount,interest_rate,branch,active,größe\nAnn Lee,10000,4.5,North,true,7\nBob,250000,6,South,false,8\n"
)
LOANS = {
    "name": "loans",
    "kind": "table",
    "files": [
        {"name": "loans.csv", "format": "csv", "text": CUSTOMERS},
        {"name": "branches.csv", "format": "csv", "text": "branch,manager\nNorth,Carla\nSouth,Deniz\n"},
    ],
}  # fmt: skip
NOTES = {
    "name": "notes",
    "kind": "documents",
    "files": [
        {
            "name": "n.txt",
            "format": "text",
            "text": "Ann Lee called twice. The due date of Ann Lee is 3 May. Bob moved.",
        }
    ],
}


STAFF = {
    "name": "staff",
    "kind": "table",
    "files": [
        {
            "name": "staff.csv",
            "format": "csv",
            "text": "first_name,last_name,manager,salary_usd,startDate,country,colour (favourite)\n"
            "Ada,D'Arc,Tim Ng,1200000,2024-03-01,IT,red\nTim,Ng,,90000,2024-04-01,NO,dark red\n"
            "Zed,Moe,Ada D'Arc,80000,2023-01-01,DE,blue\n",
        }
    ],
}
GRAPH = {
    "name": "ships",
    "kind": "graph",
    "files": [
        {
            "name": "ships.ttl",
            "format": "turtle",
            "text": "@prefix : <http://ex.org/k#> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"
            ":Tanker rdfs:subClassOf :Vessel . :Calor a :Tanker ; :hasHomePort :hh .\n"
            ':hh rdfs:label "Hamburg"@en, "Hambourg"@fr ; :opening "08:30:00" .',
        }
    ],
}


def asking(check: str) -> str:
    """Return a question that has the texts of a check."""
    return f"What is {', '.join(map(json.loads, re.findall(STRING, check)))}?"


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (called("tells", "Ann Lee", "amount"), "10,000 EUR", "It is 250000."),
        (called("tells", "ann lee", "amount"), "10000.00", "1000"),
        (called("tells", "Bob", "interest rate"), "Bob pays 6 %.", "4.5 %"),
        (called("tells", "Bob", "rate"), "6.0", "The evidence does not say it."),
        (called("tells", "Bob", "branch", "manager"), "Deniz manages it", "Carla"),
        (called("tells", "Bob", "branch"), "South", "South or North, I am not sure"),
        (called("tells", "Zoe", "amount"), "I could not find it in the table.", "10000"),
        (called("tells", "Ann Lee", "due date"), "The 3 May.", "on 4 May"),
        (called("tells", "Bob", "Größe"), "8", "7"),
        (called("tells", "Bob", "active"), "No, the loan is closed.", "Yes."),
        (called("tells", "Bob", "active"), "It isn't active.", "Yes and no."),
        (called("tells", "Ann Lee", "amount"), "10k EUR, not 250k.", "It is not 10,000 but 9,000."),
        (called("tells", "Ann Lee", "interest rate"), "4.50 percent", "4.5% or 4.6%"),
        (called("tells", "Zoe", "amount"), "We have no customer.", "I could not find it, so I guess 250000."),
        (called("tells", "Ada D’Arc", "start date"), "It's on March 1st, 2024.", "1 April 2024"),
        (called("tells", "the Ada D'Arc", "salary"), "$1.2 million", "USD 80,000, as of her assistant"),
        (called("tells", "Ada D'Arc", "country"), "It is in IT.", "It is in NO"),
        (called("tells", "Tim Ng", "colour"), "dark red", "red"),
        (called("tells", "Zed Moe", "manager", "manager"), "Tim Ng", "Ada D'Arc"),
        (called("tells", "Zed Moe", "earn"), "$80,000", "USD 90,000"),
        (called("tells", "Tim Ng", "report to"), "not stated", "Ada D'Arc"),
        (called("tells", "Zed Moe", "boss"), "Ada D'Arc", "Tim Ng"),
        (called("tells", "Ada D'Arc", "Where"), "IT", "NO"),
        (called("tells", "Ada D'Arc", "hired"), "1 March 2024", "1 April 2024"),
        (called("tells", "Calor", "home port"), "Hamburg, I think", "It is not Hamburg."),
        (called("tells", "Calor", "home port"), "Hambourg", "Neither Hamburg nor Bremen."),
        (called("tells", "Calor", "home port", "opening"), "at 08:30", "at 00:00"),
        (
            called("of_kind", "the Calor", "vessel"),
            "It is indeed a vessel.",
            "The graph does not say whether it is a vessel.",
        ),
    ],
)
@in_one_loop
async def test_look_ups(pool: SandboxPool, stores: Stores, check: str, right: str, wrong: str) -> None:
    evidence = [LOANS, NOTES, STAFF, GRAPH]
    found = await outcomes(
        pool, check, right, wrong, prompt=asking(check), functions=functions_of(stores), evidence=evidence
    )
    assert found == [True, False]


@pytest.mark.parametrize(
    ("prompt", "check"),
    [
        ("What is the amount of Ann Lee?", called("tells", "Ann Leo", "amount")),
        ("What is Ann Lee's amount?", called("tells", "An Lee", "amountt")),
        ("I met Bob. Which amount has “Ann Lee” here?", called("tells", "Anna Lee", "amount")),
        ("What is the amount of Ann Lee?", called("tells", "Ann Lee", "amount", "amount")),
        ("Ben asked me. Look up the\namount of ann lee, please.", called("tells", "Ann Leee", "amounts")),
        ("how much has ann lee got, which amount?", called("tells", "ann", "amount")),
        ("Lee, Ann Lee, amount?", called("tells", "Lee", "amount")),
    ],
)
@in_one_loop
async def test_copies_of_the_prompt_are_mended(pool: SandboxPool, stores: Stores, prompt: str, check: str) -> None:
    found = await outcomes(
        pool, check, "10000", "250000", prompt=prompt, functions=functions_of(stores), evidence=[LOANS]
    )
    assert found == [True, False]


@in_one_loop
async def test_a_part_of_another_name_is_not_found(pool: SandboxPool, stores: Stores) -> None:
    """The table has Ann Lee, but not the Ann of the prompt."""
    check, functions = called("tells", "Ann", "amount"), functions_of(stores)
    prompt = "What is the amount of Ann, and not of Bob?"
    found = await outcomes(pool, check, "not stated", "10000", prompt=prompt, functions=functions, evidence=[LOANS])
    assert found == [True, False]


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        ("Has Ann Lea or Ann Leo the larger amount?", "Ann Lew"),
        ("What is the amount of Zed?", "Bob"),
        ("", "Bob"),
        ("amount " * 50_000, "Bobby Tables"),
    ],
)
@in_one_loop
async def test_a_thing_that_the_prompt_does_not_name_is_not_looked_up(
    pool: SandboxPool, stores: Stores, prompt: str, name: str
) -> None:
    check = called("tells", name, "amount")
    found = await outcomes(
        pool, check, "250000", "not stated", prompt=prompt, functions=functions_of(stores), evidence=[LOANS]
    )
    assert found == ["LookupError"] * 2


@pytest.mark.parametrize(
    ("check", "functions_are_given", "error"),
    [
        (called("tells", "Bob", "shoe size"), True, "LookupError"),
        (called("of_kind", "Bob", "customer"), True, "LookupError"),
        (called("tells", "Bob", "interest score"), True, "LookupError"),
        (called("tells", "Bob", "tall"), True, "LookupError"),
        (called("tells", "Bob", "amount"), False, "NameError"),
        (called("tells", 'x"; DROP TABLE loans; --', 'x" FROM loans; --'), True, "LookupError"),
    ],
)
@in_one_loop
async def test_what_no_store_tells_is_not_checked(
    pool: SandboxPool, stores: Stores, check: str, functions_are_given: bool, error: str
) -> None:
    functions = functions_of(stores) if functions_are_given else ()
    found = await outcomes(pool, check, "1", "2", prompt=asking(check), functions=functions, evidence=[LOANS])
    assert found == [error] * 2


T = TypeVar("T")


def some_of_each(items: Iterable[T], *, group: Callable[[T], object], most: int) -> list[T]:
    """Return the first items of each group, at most `most`."""
    num_of: Counter[object] = Counter()
    found = []
    for item in items:
        num_of[group(item)] += 1
        if num_of[group(item)] <= most:
            found.append(item)
    return found


@pytest.mark.slow  # programs with queries, each query in a process of its own
@pytest.mark.parametrize("source", ["worlds", "writer"])
@in_one_loop
async def test_look_ups_solve_held_out_questions(pool: SandboxPool, stores: Stores, source: str) -> None:
    if source == "worlds":
        tasks = islice(draw_tasks(seed="helpers", held_out=True), 30)
        cases = [
            (task.question, task.responses, {task.label}, checks_of_task(task), task.stores)
            for task in some_of_each(tasks, group=lambda task: (task.kind, task.conflict), most=2)
        ]
    else:
        items = islice(written_lookups(Path(), 1), 0, None, 6)
        cases = [
            (item.prompt, item.responses, item.right, (item.asked_call or "",), item.evidence)
            for item in some_of_each(items, group=lambda item: item.group, most=5)
        ]
    assert len(cases) > 10
    for prompt, responses, right, checks, evidence in cases:
        for check in checks:
            found = await outcomes(
                pool, check, *responses, prompt=prompt, functions=functions_of(stores), evidence=evidence
            )
            assert found == [place in right for place in range(2)], (prompt, responses, check, json.dumps(evidence))


@in_one_loop
async def test_whole_programs_call_the_tools(pool: SandboxPool, stores: Stores) -> None:
    prompt = f"{PROMPT}\nAnd what is the interest rate of Ann Lee?"
    responses = {"A": f"```python\n{RIGHT}```\nThe interest rate is 4.5 %.", "B": f"```python\n{WRONG}```\nIt is 7 %."}
    checks = [EXAMPLES, called("tells", "Ann Lee", "interest rate"), "words(r) < 2"]
    request = JudgeRequest.model_validate(
        {"mode": "pairwise", "prompt": prompt, "responses": [*responses.values()], "evidence": [LOANS]}
    )
    offer = Offer(functions=(*FUNCTIONS, *functions_of(stores)), account=CallAccount(), request=request)
    bound = {"prompt": prompt, "responses": responses}
    result = await pool.run(program(checks, mode=Mode.PAIRWISE), bindings=bound, offer=offer)
    assert result.stdout.splitlines()[:2] == ["A 1 1 0", "B 0 0 0"], result
    assert result.stdout.splitlines()[-1] == 'CHECK {"A": 2, "B": 0}', result
