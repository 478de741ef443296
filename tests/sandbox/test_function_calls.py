"""Function calls of programs: hostile programs, failing functions, budgets, and failures of the sandbox during a call."""

import asyncio
import hashlib
import json
import os
import signal
from dataclasses import replace

import pytest

from tests.sandbox.conftest import LIMITS, MAX_LIMITS
from tests.sandbox.level_sampling import at_levels, at_strongest_level
from tirjudge.errors import SandboxUnavailable
from tirjudge.tools.functions import Budget, CallAccount, Offer, ToolError, ToolFunction, function, to_json_value
from tirjudge.types import Outcome
from tirjudge_sandbox import SandboxPool
from tirjudge_sandbox.candidates import FUNCTIONS
from tirjudge_sandbox.exchange import MAX_RECORDED_BYTES
from tirjudge_sandbox.messages import MAX_MESSAGE_BYTES

SPEND = "import time\nend = time.process_time() + {}\nwhile time.process_time() < end: pass\n"


@function
async def add(a: int, b: int = 1) -> int:
    """The sum."""
    return a + b


@function
async def nap(seconds: float) -> str:
    """Waits."""
    await asyncio.sleep(seconds)
    return "rested"


@function
async def fail(how: str) -> str:
    """Fails."""
    match how:
        case "tool error":
            raise ToolError("unknown row: 7")
        case "timeout":
            raise TimeoutError("a connection")
        case _:
            raise RuntimeError("the password is 1234")


@function(name="evidence.search")
async def search(word: str, limit: int = 5) -> list[str]:
    """Texts with a word."""
    return [word] * limit


@function
async def echo(text: str) -> str:
    """The text."""
    return text


def made(value, **options):
    """A function without output schema that returns a value."""

    async def handle(arguments, context):
        return value() if callable(value) else value

    return ToolFunction(
        name="made",
        description="A value.",
        signature="()",
        parameters=("x",),
        handle=handle,
        check=dict,
        to_json=to_json_value,
        input_schema={"type": "object"},
        output_schema=None,
        **options,
    )


OWN = (add, nap, fail, search, echo)


async def run(pool, code, *functions, account=None, limits=None, **bindings):
    offer = Offer(functions=(*FUNCTIONS, *(functions or OWN)), account=account or CallAccount())
    return await pool.run(code, bindings=bindings, offer=offer, limits=limits)


async def output(pool, code, *functions, **options):
    result = await run(pool, code, *functions, **options)
    assert result.outcome is Outcome.OK, result
    return result.stdout.strip()


def attempt(code):
    """A program that prints the ToolError of a piece of code."""
    return f"try:\n    print({code})\nexcept ToolError as error:\n    print(error)"


# ------------------------------------------------------------------------------------------------------------------ calls


async def test_functions_can_be_called_by_position_and_by_name(pool):
    assert await output(pool, "print(add(2), add(2, 3), add(b=5, a=1))") == "3 5 6"


async def test_a_dotted_name_is_an_attribute(pool):
    assert (
        await output(pool, "print(evidence.search('x', 2), evidence.search(word='y', limit=1))") == "['x', 'x'] ['y']"
    )


@at_levels(
    ("code", "message"),
    [
        ("add()", "add: a: Field required"),
        ("add(1, 2, 3)", "add: takes 2 arguments (a, b), 3 given"),
        ("add(1, a=2)", "add: a given twice"),
        ("add(1, c=2)", "add: c: Extra inputs are not permitted"),
        ("add('1')", "add: a: Input should be a valid integer"),
        ("add(float('nan'))", "add: the arguments cannot be sent as JSON"),
        ("add(1e999)", "add: the arguments cannot be sent as JSON"),
        ("add({1, 2})", "add: the arguments cannot be sent as JSON"),
        ("echo('x' * (17 << 20))", "echo: the arguments cannot be sent as JSON"),
        ("run(3)", "run: code: expected the source as str, got int"),
        ("run('x', args=3)", "run: args: expected a list of arguments, got int"),
        ("run('x', timeout_s=-1)", "run: timeout_s: Input should be greater than 0"),
        ("run('x', call='f', args=[{1}])", "run: the arguments cannot be sent as JSON"),
        ("tests('x', [3])", "tests: case 0: expected a dict"),
        ("tests('x', [{'stdin': ''}])", 'tests: case 0: expected "stdout", or "call" and "returns"'),
        ("tests('x', [{'stdout': '', 'input': ''}])", "tests: case 0: unknown key 'input'; expected args, call"),
        ("fail('tool error')", "fail: unknown row: 7"),
        ("fail('timeout')", "fail: the tool failed with TimeoutError; this is not an error of the program"),
        ("fail('otherwise')", "fail: the tool failed with RuntimeError; this is not an error of the program"),
    ],
)
async def test_a_call_that_fails_raises_an_error_with_the_reason(pool, code, message):
    assert (await output(pool, attempt(code) + "\nprint(add(1))")).startswith(message)


async def test_an_uncaught_error_of_a_function_is_the_error_of_the_program(pool):
    result = await run(pool, "fail('tool error')")
    assert (result.outcome, result.error) == (Outcome.ERROR, "ToolError: fail: unknown row: 7")
    assert "1234" not in (await run(pool, "fail('otherwise')")).stderr


async def test_an_unknown_function_is_an_error_with_the_offered_names(pool):
    code = "from tirjudge_sandbox.guest import HostConnection\nconnection = add.__closure__[0].cell_contents\n"
    code += attempt("connection.call('steal', {})")
    assert await output(pool, code, add) == ("steal: unknown function; available: run, run_many, tests, add")


async def test_nothing_is_offered_without_functions(pool):
    result = await pool.run("print('run' in globals(), 'ToolError' in globals())")
    assert result.stdout == "False False\n"


async def test_threads_of_a_program_can_call(pool):
    code = """
from threading import Thread
found = []
threads = [Thread(target=lambda n=n: found.append(add(n))) for n in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sorted(found))
"""
    assert await output(pool, code) == "[1, 2, 3, 4, 5, 6, 7, 8]"


@at_strongest_level
@pytest.mark.parametrize("text", ["'\\ud800'", "'\\x00\\x1b[2J\\r\\n'", "'\\u2028 \\U0001f600'"])
async def test_unusual_text_arrives(pool, text):
    assert await output(pool, f"print(ascii(echo({text})))") == ascii(eval(text).replace("\ud800", "\ufffd"))  # noqa: S307


@at_strongest_level
@pytest.mark.slow
async def test_the_largest_messages_pass_in_both_directions(pool):
    code = "text = 'x' * (15 << 20)\nprint(echo(text) == text)"
    assert await output(pool, code) == "True"


# ------------------------------------------------------------------------------------------------------- hostile programs

SOCKET = "import json, os, socket, struct\nraw = add.__closure__[0].cell_contents._socket\n"
"""The program's end of the socket. Programs have it, so they can send anything."""


def framed(text):
    return f"struct.pack('>I', len({text})) + {text}"


CLOSED = "add: no connection to the functions: "


@at_levels(
    "sent",
    [
        "b'garbage garbage garbage'",
        "struct.pack('>I', 1 << 30)",
        "struct.pack('>I', 0)",
        framed("b'[]'"),
        framed("b'{}'"),
        framed('b\'{"id": 1, "function": "add"}\''),
        framed('b\'{"id": true, "function": "add", "arguments": {}}\''),
        framed('b\'{"id": 1, "function": [], "arguments": {}}\''),
        framed('b\'{"id": 1, "function": "add", "arguments": []}\''),
        framed('b\'{"id": 1, "function": "add", "arguments": {"a": NaN}}\''),
        framed('b\'{"id": \' + b\'9\' * 5000 + b\', "function": "add", "arguments": {}}\''),
        framed("b'[' * 100000"),
        framed("b'\\xff\\xfe'"),
    ],
)
async def test_an_invalid_message_closes_the_channel_of_this_program_only(pool, sent):
    code = f"{SOCKET}raw.sendall({sent})\n{attempt('add(1)')}"
    assert (await output(pool, code)).startswith(CLOSED)
    assert await output(pool, "print(add(1))") == "2"


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("'[' * 500 + ']' * 500", "arguments: lists and objects are nested more than 100 deep"),
        ("'1e999'", "arguments: inf is not JSON"),
        ("'-1e999'", "arguments: -inf is not JSON"),
    ],
)
async def test_arguments_that_cannot_be_recorded_are_refused(pool, argument, message):
    code = f"""{SOCKET}
message = '{{"id": 1, "function": "add", "arguments": {{"a": ' + {argument} + '}}}}'
raw.sendall(struct.pack('>I', len(message)) + message.encode())
print(json.loads(raw.recv(1 << 16)[4:])["error"])
"""
    assert await output(pool, code) == message


async def test_two_calls_at_once_close_the_channel(pool):
    code = f"""{SOCKET}
message = json.dumps({{"id": 1, "function": "nap", "arguments": {{"seconds": 600}}}}).encode()
frame = struct.pack('>I', len(message)) + message
raw.sendall(frame + frame)
{attempt("add(1)")}
"""
    async with asyncio.timeout(120):  # the open call is cancelled
        assert (await output(pool, code)).startswith(CLOSED)


@at_strongest_level
@pytest.mark.slow
async def test_a_gigabyte_after_a_length_is_not_read(pool):
    code = f"""{SOCKET}
raw.sendall(struct.pack('>I', {MAX_MESSAGE_BYTES}))
block, sent = b"x" * (1 << 20), 0
try:
    for _ in range(1024):
        raw.sendall(block)
        sent += 1
except OSError:
    pass
print(sent < 100)
"""
    assert await output(pool, code, limits=replace(LIMITS, cpu_s=5)) == "True"


async def test_an_answer_that_is_never_read_keeps_nothing_waiting(pool):
    code = f"""{SOCKET}
message = json.dumps({{"id": 1, "function": "echo", "arguments": {{"text": "x" * 4000000}}}}).encode()
raw.sendall(struct.pack('>I', len(message)) + message)
print("done")
"""
    assert await output(pool, code) == "done"


async def test_a_message_that_is_never_finished_is_dropped_at_the_end(pool):
    result = await run(pool, f"{SOCKET}raw.sendall(struct.pack('>I', 100) + b'{{')\nprint('done')")
    assert (result.stdout, result.calls) == ("done\n", ())


async def test_a_forked_process_has_no_connection(pool):
    code = f"""
import os
try:
    child = os.fork()
except OSError:
    print("forks are not allowed")
else:
    if child == 0:
        {attempt("add(1)").replace(chr(10), chr(10) + "        ")}
        os._exit(0)
    os.wait()
    print(add(2))
"""
    text = await output(pool, code)
    assert text == "forks are not allowed" or (CLOSED in text and text.endswith("\n3"))


async def test_calls_after_the_budget_close_the_channel(pool):
    account = CallAccount(Budget(calls=10))
    code = """
found = []
while True:
    try:
        found.append(add(1))
    except ToolError as error:
        found.append(str(error))
        if "no connection" in str(error):
            break
print(len(found), found[9], found[10], found[-1], sep="\\n")
"""
    lines = (await output(pool, code, account=account)).split("\n")
    assert lines[1:3] == ["2", "add: the budget of this judgment is used up: 10 calls"]
    assert int(lines[0]) < 200
    assert lines[3].startswith(CLOSED)


@pytest.mark.parametrize("call", ["connection.call('steal', {})", "add({'a': [[[]]]})"])
async def test_calls_that_are_only_refused_end_too(pool, call):
    code = f"""
connection = add.__closure__[0].cell_contents
number = 0
while True:
    number += 1
    try:
        {call}
    except ToolError as error:
        if "no connection" in str(error):
            break
print(number < 400)
"""
    assert await output(pool, code) == "True"


# ----------------------------------------------------------------------------------------------------------------- budgets


async def test_calls_of_a_function_have_a_budget_of_their_own(pool):
    few = made(1, budget=Budget(calls=2))
    code = f"print(made(), made(), add(1))\n{attempt('made()')}"
    assert await output(pool, code, few, add) == "1 1 2\nmade: the budget of this judgment for made is used up: 2 calls"


async def test_a_program_uses_what_others_of_the_judgment_left(pool):
    account = CallAccount(Budget(calls=3))
    assert await output(pool, "print(add(1), add(1))", account=account) == "2 2"
    code = f"print(add(1))\n{attempt('add(1)')}"
    assert (await output(pool, code, account=account)).endswith("the budget of this judgment is used up: 3 calls")
    assert account.num_calls == 4


async def test_the_budget_of_the_caller_counts_all_judgments(pool):
    caller = CallAccount(Budget(calls=3), whose="this key")
    assert await output(pool, "print(add(1), add(1))", account=CallAccount(parent=caller)) == "2 2"
    code = f"print(add(1))\n{attempt('add(1)')}"
    text = await output(pool, code, account=CallAccount(parent=caller))
    assert text == "2\nadd: the budget of this key is used up: 3 calls"


async def test_each_candidate_of_run_many_counts(pool):
    account = CallAccount(Budget(calls=5))
    code = f"print(len(run_many(['1', '2', '3'])))\n{attempt('run_many([str(n) for n in range(3)])')}"
    assert (await output(pool, code, account=account)).endswith("is used up: 5 calls")


@pytest.mark.parametrize(
    ("budget", "code"), [(Budget(bytes_in=1000), "echo('x' * 2000)"), (Budget(bytes_out=1000), "echo('x' * 2000)")]
)
async def test_bytes_have_a_budget(pool, budget, code):
    assert "is used up: 1,000 bytes of" in await output(pool, attempt(code), account=CallAccount(budget))


async def test_a_function_that_hangs_ends_with_its_time_budget(pool):
    account = CallAccount(Budget(seconds=0.2))
    text = await output(pool, f"{attempt('nap(60)')}\n{attempt('nap(60)')}", account=account)
    first, second = text.split("\n")
    assert first == "nap: not done after 0.2 s, the rest of its time budget"
    assert second.startswith("nap: the budget of this judgment is used up: 0.2 seconds") or "not done" in second


# ------------------------------------------------------------------------------------------------------- failing functions


def _recursive():
    value = []
    value.append(value)
    return value


def _deep():
    value = []
    for _ in range(200):
        value = [value]
    return value


@at_strongest_level
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1, 2}, "made: the tool returned a result that is not JSON"),
        (float("nan"), "made: nan is not JSON"),
        ([1, {"x": float("inf")}], "made: inf is not JSON"),
        (_recursive, "made: the tool returned a result that is not JSON"),
        (_deep, "made: lists and objects are nested more than 100 deep"),
        ({1: 2, "1": 3}, "made: the tool returned a result that is not JSON"),
    ],
)
async def test_a_function_that_returns_no_json_fails_alone(pool, value, message):
    assert (await output(pool, f"{attempt('made()')}\nprint(add(1))", made(value), add)).startswith(message)


async def test_an_error_message_is_cut(pool):
    def complain():
        raise ToolError("x" * 5000)

    assert len(await output(pool, attempt("made()"), made(complain))) < 1100


async def test_a_failure_of_the_sandbox_in_a_call_is_a_failure_of_the_program(pool):
    def complain():
        raise SandboxUnavailable("no slots")

    with pytest.raises(SandboxUnavailable, match="no slots"):
        await run(pool, "try:\n    made()\nexcept ToolError:\n    print('caught')", made(complain))


# ------------------------------------------------------------------------------------------------------------------- time


@pytest.mark.slow
async def test_wall_time_stops_during_calls(level, open_shared):
    shared = await open_shared(slots=2, limits=replace(LIMITS, wall_s=0.5), max_limits=MAX_LIMITS, level=level)
    result = await run(shared, "print(nap(0.8))")
    assert result.stdout == "rested\n", result
    assert result.wall_s < 0.5


@at_strongest_level
@pytest.mark.slow
async def test_many_short_calls_do_not_count_as_wall_time(level, open_shared):
    shared = await open_shared(slots=2, limits=replace(LIMITS, wall_s=1.5), max_limits=MAX_LIMITS, level=level)
    result = await run(shared, "print([nap(0.04) for _ in range(50)][-1])")
    assert result.stdout == "rested\n", result


@pytest.mark.slow
async def test_wall_time_outside_calls_is_limited(level, open_shared):
    shared = await open_shared(slots=2, limits=replace(LIMITS, wall_s=0.5), max_limits=MAX_LIMITS, level=level)
    result = await run(shared, "import time\nnap(0.3)\ntime.sleep(30)")
    assert (result.outcome, result.error) == (Outcome.TIMEOUT, "TimeLimit: not done after 0.5 s")
    assert result.wall_s > 0.4


async def test_cpu_time_during_a_call_is_limited(pool):
    code = f"from threading import Thread\nThread(target=nap, args=[600], daemon=True).start()\n{SPEND.format(300)}"
    async with asyncio.timeout(120):
        result = await run(pool, code, limits=replace(LIMITS, cpu_s=0.2))
    assert result.outcome is Outcome.TIMEOUT
    assert "processor time" in result.error


async def test_an_open_call_does_not_outlive_its_program(pool):
    ended = asyncio.Event()

    @function
    async def wait() -> None:
        """Waits until it is cancelled."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    code = f'{SOCKET}\nmessage = b\'{{"id": 1, "function": "wait", "arguments": {{}}}}\'\n'
    code += "import time\nraw.sendall(struct.pack('>I', len(message)) + message)\ntime.sleep(0.1)\nprint('done')"
    result = await run(pool, code, wait, add)
    assert (result.stdout, result.calls) == ("done\n", ())
    assert ended.is_set()


# -------------------------------------------------------------------------------------------------------------- candidates


async def test_what_a_candidate_prints_is_not_in_the_output_of_the_program(pool):
    code = "r = run(c); q = run(c, call='f'); t = tests(c, [{'stdout': ''}]); print(len(r.stdout), q.ok, t.passed)"
    candidate = "import sys\nprint('SECRET')\nprint('SECRET', file=sys.stderr)\ndef f(): print('SECRET')"
    result = await run(pool, code, c=candidate)
    assert result.stdout == "7 True 0\n"
    assert "SECRET" not in result.stderr


@pytest.mark.parametrize(
    ("candidate", "outcome"),
    [
        ("print(1)", "ok"),
        ("x", "error"),
        ("import sys; sys.exit(3)", "error"),
        ("while True: pass", "timeout"),
        ("import time; time.sleep(60)", "timeout"),
        ("x = [0] * (1 << 40)", "oom"),
        ("import ctypes; ctypes.string_at(0)", "crash"),
        ("while True: print('x' * 1000000)", "output_limit"),
    ],
)
async def test_the_outcome_of_a_candidate_is_the_kernels(pool, candidate, outcome):
    timeout_s = 0.3 if outcome == "timeout" else 5
    assert await output(pool, f"print(run(c, timeout_s={timeout_s}).outcome)", c=candidate) == outcome


async def test_a_candidate_has_no_functions_of_its_own(pool):
    code = 'print(run(\'print([n for n in ("run", "tests", "add", "ToolError") if n in globals()])\').stdout)'
    assert await output(pool, code) == "[]"


async def test_candidates_of_one_call_run_concurrently(pool):
    # On a busy machine, the first candidate may end before the second starts. One after the other, they never overlap.
    code = """
candidate = "import time; print(time.time()); time.sleep(0.2); print(time.time())"
for _ in range(10):
    one, two = [[float(text) for text in each.stdout.split()] for each in run_many([candidate] * 2)]
    if one[0] < two[1] and two[0] < one[1]:
        print("overlap")
        break
"""
    assert await output(pool, code) == "overlap"


@at_strongest_level
async def test_run_many_keeps_the_order(pool):
    code = (
        "print([r.stdout.strip() for r in run_many([f'print({n})' for n in range(40)])] == [str(n) for n in range(40)])"
    )
    assert await output(pool, code) == "True"


@at_strongest_level
async def test_programs_that_all_wait_for_candidates_do_not_block_each_other(level, open_shared):
    shared = await open_shared(slots=1, limits=LIMITS, max_limits=MAX_LIMITS, level=level)
    found = await asyncio.gather(*(output(shared, f"print(run('print({n})').stdout)") for n in range(8)))
    assert found == [str(n) for n in range(8)]


async def test_files_of_a_candidate_that_are_invalid_are_an_error_of_the_call(pool):
    assert (await output(pool, attempt("run('x', files={'../x': ''})"))).startswith("run: files: ")


async def test_a_candidate_with_files_can_read_them(pool, level):
    if not level.has_namespaces:
        pytest.skip("programs have no private directory at this level")
    assert await output(pool, "print(run('print(open(\"a/b.txt\").read())', files={'a/b.txt': 'x'}).stdout)") == "x"


# ------------------------------------------------------------------------------------------------------------ comparisons


COMPARED = [
    ("1", "1", True),
    ("1.0", "1", True),
    ("0.1 + 0.2", "0.3", True),
    ("0.1", "0.2", False),
    ("float('inf')", "0.5", False),
    ("float('-inf')", "0.5", False),
    ("float('nan')", "0.5", False),
    ("float('nan')", "float('nan')", False),
    ("0.5", "float('inf')", False),
    ("float('inf')", "float('inf')", True),
    ("10 ** 400", "0.5", False),
    ("10 ** 400", "10 ** 400", True),
    ("True", "1", False),
    ("1", "True", False),
    ("None", "0", False),
    ("(1, 2)", "[1, 2]", True),
    ("[1, 2]", "(1, 2)", True),
    ("[1]", "[1, 2]", False),
    ("{1: 2}", "{1: 2}", True),
    ("{'a': [0.3]}", "{'a': [0.1 + 0.2]}", True),
    ("{'a': 1, 'b': 1}", "{'a': 1}", False),
    ("'1'", "1", False),
    ("None", "None", True),
]
"""Returned value, expected value, and whether the case passes."""


@at_strongest_level
async def test_values_are_compared_in_the_program_of_the_judge(pool):
    candidate = "".join(f"def f{number}(): return {returned}\n" for number, (returned, _, _) in enumerate(COMPARED))
    expected = ", ".join(expected for _, expected, _ in COMPARED)
    code = (
        f"print([tests(c, [{{'call': f'f{{n}}', 'returns': value}}]).passed for n, value in enumerate([{expected}])])"
    )
    found = json.loads(await output(pool, code, c=candidate))
    assert [case[:2] for case, passed in zip(COMPARED, found, strict=True) if passed != case[2]] == []


@at_strongest_level
async def test_outputs_are_compared_line_by_line_without_blanks_at_the_end(pool):
    code = "print([tests('print(%r)' % text, [{'stdout': '1 2\\n3\\n'}]).passed for text in texts.split('|')])"
    assert (
        await output(pool, code, texts="1 2\n3|1 2  \r\n3\n\n|1  2\n3|1 2\x1c3|1 2\u20283|1 2") == "[1, 1, 0, 0, 0, 0]"
    )


@at_strongest_level
@pytest.mark.slow
async def test_large_values_do_not_fill_the_memory_of_the_program(pool):
    code = "r = tests(c, [{'call': 'f', 'returns': 1}] * 24)\nprint(r.passed, len(str(r)) < 100000)"
    assert await output(pool, code, c="def f(): return [{}] * 250000", limits=replace(LIMITS, cpu_s=20)) == "0 True"


@at_strongest_level
@pytest.mark.slow
async def test_expected_values_of_numpy_are_those_of_python(level, open_shared):
    code = "import numpy as np\nprint(tests(c, [{'call': 'f', 'returns': np.array([1, 2]).sum()}, "
    code += "{'call': 'g', 'returns': np.arange(3)}]).passed)"
    shared = await open_shared(slots=1, level=level)
    assert await output(shared, code, c="def f(): return 3\ndef g(): return [0, 1, 2]") == "2"


# ----------------------------------------------------------------------------------------------------------------- records


def _hash(value):
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


async def test_each_call_is_recorded(pool):
    result = await run(pool, f"add(2, 3)\n{attempt('add()')}\n{attempt('fail(str())')}\nevidence.search('é')")
    records = result.calls
    assert [each.function for each in records] == ["add", "add", "fail", "evidence.search"]
    first, second, third, last = records
    assert (first.arguments, first.result, first.error, first.version) == ({"a": 2, "b": 3}, 5, None, "1")
    assert (first.arguments_sha256, first.result_sha256, first.num_bytes) == (_hash({"a": 2, "b": 3}), _hash(5), 1)
    assert (second.arguments, second.result, second.result_sha256) == ({}, None, None)
    assert second.error == "a: Field required"
    assert third.error == "the tool failed with RuntimeError; this is not an error of the program"
    assert last.result_sha256 == _hash(["é"] * 5)
    assert all(each.ms >= 0 for each in records)


@at_strongest_level
async def test_large_arguments_and_results_are_recorded_by_their_hash(pool):
    size = MAX_RECORDED_BYTES + 1
    (record,) = (await run(pool, f"echo('x' * {size})")).calls
    assert (record.arguments, record.result) == (None, None)
    assert record.result_sha256 == _hash("x" * size)
    assert record.arguments_sha256 == _hash({"text": "x" * size})
    assert record.num_bytes == size + 2


async def test_calls_are_recorded_if_the_program_fails_or_is_killed(pool):
    for ending in ("1 / 0", "import os; os._exit(0)", "import ctypes; ctypes.string_at(0)"):
        result = await run(pool, f"add(1)\n{ending}")
        assert [each.result for each in result.calls] == [2]


# --------------------------------------------------------------------------------------------------- ends during a call


@pytest.mark.parametrize("code", ["nap(60)", "run('import time; time.sleep(60)')"])
async def test_a_cancelled_program_ends_its_call(pool, until, code):
    task = asyncio.create_task(run(pool, code))
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: pool._candidate_queue.num_idle == 2)  # the candidate was killed
    assert await output(pool, "print(add(1), run('print(1)').stdout)") == "2 1"


@pytest.mark.parametrize("code", ["nap(60)", "run('import time; time.sleep(60)')"])
async def test_closing_a_pool_ends_open_calls(level, code):
    async with SandboxPool(slots=1, limits=LIMITS, max_limits=MAX_LIMITS, level=level) as pool:
        task = asyncio.create_task(run(pool, code))
        await asyncio.sleep(0.2)
    with pytest.raises(SandboxUnavailable):
        await asyncio.wait_for(task, 5)


async def test_a_fork_server_that_dies_during_a_call_is_a_failure_of_the_sandbox(level, pool, until):
    async with SandboxPool(slots=2, limits=LIMITS, max_limits=MAX_LIMITS, level=level) as own:
        tasks = [asyncio.create_task(run(own, "run('import time; time.sleep(20)')")) for _ in range(2)]
        neighbour = asyncio.create_task(output(pool, "print(nap(0.3))"))
        await asyncio.sleep(0.3)
        for server in own._servers.values():
            os.kill(server._process.pid, signal.SIGKILL)
        for done in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(done, SandboxUnavailable), done
        assert await neighbour == "rested"
        assert await output(own, "print(run('print(1)').stdout)") == "1"


# ----------------------------------------------------------------------------------------------------- cited results


SAME = """
import copy, json, pickle, pprint
rows, plain = made(), {plain}
print(rows == plain, plain == rows, repr(rows) == repr(plain), json.dumps(rows) == json.dumps(plain))
print(pprint.pformat(rows) == pprint.pformat(plain), isinstance(rows, type(plain)), len(rows) == len(plain))
for again in (pickle.loads(pickle.dumps(rows)), pickle.loads(pickle.dumps(rows, 0)), copy.copy(rows), copy.deepcopy(rows)):
    print(again == plain, type(again) is type(plain))
"""


@at_strongest_level
@pytest.mark.parametrize("value", [[{"a": 1}, 2, [{"b": None}]], {"a": [1], "b": {}}, [], {}])
async def test_results_behave_as_lists_and_dicts(pool, value):
    printed = await output(pool, SAME.format(plain=repr(value)), made(value))
    assert set(printed.split()) == {"True"}


@at_strongest_level
async def test_results_and_their_rows_know_the_call(pool):
    program = """
first = made()
add(1)
second = made()
print(first.call, second.call, [row.row for row in second if isinstance(row, dict)], second[0].call, type(second[1]))
"""
    printed = await output(pool, program, made([{"a": 1}, 2, {"a": 3}]), add)
    assert printed == "1 3 [0, 2] 3 <class 'int'>"


@at_strongest_level
async def test_numbers_of_calls_are_positions_in_the_record(pool):
    program = """
for wrong in (lambda: made({1, 2}), lambda: made([[[]]] and "x" * (17 << 20)), lambda: add("1")):
    try:
        wrong()
    except ToolError:
        pass
deep = []
for _ in range(200):
    deep = [deep]
try:
    made(deep)
except ToolError:
    pass
print(made().call, made().call)
"""
    result = await run(pool, program, made([1]), add)
    assert result.stdout == "2 3\n", result
    assert [call.function for call in result.calls] == ["add", "made", "made"]
