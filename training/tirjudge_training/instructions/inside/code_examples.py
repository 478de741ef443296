"""Tests from the examples that a prompt for code shows.

Calls with their results are understood in the layouts that people use: `f(1) -> 2`, `f(1) should return 2`, tables,
`print(f(1))  # 2`, assertions, and interactive sessions with `>>>`. So are samples of input and output, for programs that
read the standard input and for functions (`nums = [1, 2], k = 3`). All calls run in one process, with `tests`; each sample
of a program runs in a process of its own.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    tests: Callable[..., Any]

# Program
import ast
import builtins
import re
import sys
from itertools import pairwise, takewhile
from textwrap import dedent
from typing import Any

Call = tuple[set[str], str, Any]
"""The names of functions, the expression to compute, the result."""

Shown = tuple[list[str], list[Any], list[Call]]
"""The statements of a session and their results, and calls."""

MAX_CASES = 8
MAX_CHARS = 40_000
SECONDS = 4.0
OTHER_LANGUAGE = (
    r"C\+\+|C#|\b(?:Java|JavaScript|TypeScript|Rust|Golang|Kotlin|Ruby|PHP|Swift|Scala|Haskell|Perl|Lua|SQL|Bash)\b"
    r"|\b(?:Go|C) (?:function|program|code)|\bin (?:Go|C)\b"
)
SAID = (
    r"(?:\s*\))?[`\"']?(?:"
    r",?\s*(?:which |it |this |that )?(?:(?:should|must|shall|will|would|has to|needs to|ought to) )?"
    r"(?:be|is|return|give|yield|output|produce|evaluate to|evaluates to|equal|become|result in|results in)s?:?\s+"
    r"|\s+to (?:be|return|give|equal)\s+"
    r"|,?\s+(?:then )?[iI] (?:(?:should|must|want to|expect to) )?(?:want|expect|get|see):?\s+"
    r"|\s+(?=(?:True|False|None)\b)"
    r"|\s*(?:[-=]{1,3}>|===?|=|[→➞⇒⟶]|:|\||\#\s*(?:[-=]{0,2}>|returns|gives|:)?|//)\s*)"
    r"(?:(?:the|a|an) (?:list|string|number|value|tuple|dict\w*|set|boolean|integer)\s+)?`?"
)
LITERAL = (
    r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w)(?!\.\w)"
    r"|(?:set|sorted|list|tuple|frozenset|dict)\(|(?:True|False|None|true|false|null)\b"
)
CORRECTED = r"[`'\"]*[,;.( ]*(?:but|instead|rather|should|expected|wrong|when|while)\b"
END_OF_SHOWN = r"```|\"{3}|'{3}|$"
VALUE = (  # sets are marked, because JSON has none
    "\n\ndef _value(x):\n    from json import dumps, loads\n    return loads(dumps(x, default=lambda y: "
    "{'set': sorted(y, key=repr)} if isinstance(y, (set, frozenset)) else y))\n"
)
IMPORTS = (
    "import bisect, collections, functools, heapq, itertools, math, random, re, string, sys\n"
    "from typing import *\nfrom collections import *\nfrom functools import *\nfrom itertools import *\n"
    "from heapq import *\nfrom bisect import *\nfrom math import *\nfrom builtins import pow\n"
)
HEADER = (
    r"(?i)[\s*_#>`-]*(sample |example |expected )?#?\d*\W{0,3}(in|out)put(?:Copy)?\b ?#?(\d*)"
    r"(?: ?for (?:sample|example) ?\d*)?[\s*_`]*(?:[:=][\s*_`]*(.*)|)$"
)


def closing(text: str, start: int) -> int | None:
    """Return where the bracket or the string ends that begins at `start`; None if it does not."""
    ends, quote, at = {"(": ")", "[": "]", "{": "}"}, "", start
    expected = []
    while at < min(len(text), start + 3000):
        character = text[at]
        if quote:
            if character == "\\":
                at += 1
            elif character == quote:
                quote = ""
        elif character in "\"'":
            quote = character
        elif character in ends:
            expected.append(ends[character])
        elif character in ")]}" and (not expected or expected.pop() != character):
            return None
        at += 1
        if not quote and not expected:
            return at
    return None


def literal(text: str) -> tuple[Any, int] | None:
    """Return the value at the start of a text, and where it ends. A set is a frozenset."""
    text = text[:3000]
    found = re.match(LITERAL, text)
    if text[:1] and text[0] in "[({\"'":
        end = closing(text, 0)
    elif found and found[0].endswith("("):
        end = closing(text, found.end() - 1)
    else:
        end = found and found.end()
    if not end or re.match(r"[ \t]*[-+*/%<>&|^][ \t]*[\w([]|\.[a-z]|[\[(]", text[end:]):
        return None
    source = text[:end]
    word = {"true": True, "false": False, "null": None}
    if source in word:
        return word[source], end
    wrap = re.match(r"(set|frozenset|sorted|list|tuple|dict)\(", source)
    convert = {"set": frozenset, "frozenset": frozenset, "sorted": sorted}.get(wrap[1] if wrap else "", lambda x: x)
    inner = source[wrap.end() : -1] or "()" if wrap else source
    for each in (inner, re.sub(r"\b(?:true|false|null)\b", lambda found: str(word[found[0]]), inner)):
        try:
            return convert(ast.literal_eval(each)), end
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    return None


def call_at(text: str, start: int, bracket: int) -> str | None:
    """Return the call that begins at `start` if all its arguments are literal values."""
    end = closing(text, bracket)
    if end is None:
        return None
    try:
        call = ast.parse(text[start:end], mode="eval").body
        if not isinstance(call, ast.Call):
            return None
        for each in (*call.args, *(keyword.value for keyword in call.keywords)):
            ast.literal_eval(each)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return text[start:end]


def parsed(text: str) -> ast.Module | None:
    """Return the syntax tree of a text; None if it is not Python."""
    try:
        return ast.parse(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def called_in(tree: ast.AST) -> set[str] | None:
    """Return the functions that a tree calls and that Python does not have; None if it needs other names that it lacks."""
    used, own, called = set(), {"math", "np", "pytest", *dir(builtins)}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (own if isinstance(node.ctx, ast.Store) else used).add(node.id)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called.add(node.func.id)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            own.add(node.name)
        elif isinstance(node, (ast.arg, ast.alias)):
            own.add(node.arg if isinstance(node, ast.arg) else node.asname or node.name)
    return used - own if used - own <= called else None


def assertion(test: ast.expr) -> tuple[str, Any] | None:
    """Return what an assertion computes, and the value that it must have; None if that is not said."""
    left, right = test, None
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        left, right = test.left, test.comparators[0]
        if isinstance(test.ops[0], (ast.Eq, ast.Is)):
            left, right = (left, right) if literal(ast.unparse(right)) or called_in(right) else (right, left)
            value = literal(ast.unparse(right))
            if value:
                return ast.unparse(left), value[0]
        difference = re.fullmatch(r"abs\((.*) - ([-+.\de]+)\)", ast.unparse(left))
        if difference and isinstance(test.ops[0], (ast.Lt, ast.LtE)):
            return f"abs(float({difference[1]}) - {difference[2]}) <= {ast.unparse(right)}", True
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return f"bool({ast.unparse(test.operand)})", False
    near = test if right is None else right
    if isinstance(near, ast.Call) and re.search(r"(?:isclose|approx)$", ast.unparse(near.func)):
        values = [ast.unparse(each) for each in ([left] if right is not None else []) + near.args][:2]
        if len(values) == 2:
            return f"abs(float({values[0]}) - {values[1]}) <= 1e-3 * abs({values[1]})", True
    return (f"bool({ast.unparse(test)})", True) if isinstance(test, ast.Call) else None


def asserted(statement: ast.stmt) -> ast.expr | None:
    """Return what a statement asserts."""
    if isinstance(statement, ast.Assert):
        return statement.test
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and ast.unparse(call.func) == "self.assertEqual" and len(call.args) > 1:
        return ast.Compare(call.args[0], [ast.Eq()], [call.args[1]])
    return None


def assertions_in(prompt: str) -> tuple[list[Call], str]:
    """Return what `calls_in` does for the assertions of a prompt, and the prompt without their lines."""
    lines, found, others, at, tries = prompt.split("\n"), [], [], 0, 0
    while at < len(lines):
        sizes = (
            range(1, 9) if lines[at].strip(" \t>-*`").startswith(("assert", "self.assertEqual")) and tries < 100 else ()
        )
        for size in sizes:
            tries += 1
            tree = parsed("\n".join(lines[at : at + size]).strip(" \t>-*`"))
            claims = [test for test in map(asserted, tree.body) if test] if tree else []
            if claims:
                for claim in claims:
                    said, names = assertion(claim), called_in(claim)
                    if said and names and "candidate" not in names:
                        found.append((names, *said))
                at += size
                break
        else:
            others.append(lines[at])
            at += 1
    return found, "\n".join(others)


def printed(text: str) -> str | None:
    """Return the output that a comment after a call of `print` shows."""
    shown = re.match(r"\)+[ \t]*(?:#|//|[-=]>|→)[ \t>=-]*(?:(?i:outputs?|prints|returns|expected)\b:?)?([^\n]*)", text)
    line = shown[1].strip() if shown else ""
    value = literal(line)
    if re.match(CORRECTED, line[value[1] if value else 0 :]) or (not value and len(line.split()) > 3):
        return None
    return line[: value[1]] if value else line or None


def calls_in(prompt: str) -> list[Call]:
    """Return calls with their results."""
    found, prompt = assertions_in(prompt)
    for name in [*re.finditer(r"(?<![\w.])[A-Za-z_]\w*(?= ?\()", prompt)][:250]:
        line = prompt[prompt.rfind("\n", 0, name.start()) + 1 : name.start()]
        bracket = prompt.index("(", name.end())
        call = None if hasattr(builtins, name[0]) else call_at(prompt, name.start(), bracket)
        if call is None or (bracket > name.end() and "assert" not in line):
            continue
        outer = re.search(r"\b(set|sorted|list|tuple|len|frozenset|print)\($", line)
        if re.search(r"\b(?:def|class)\s+$", line) or (line.endswith("(") and not outer):
            continue
        rest = prompt[name.start() + len(call) :][:4000]
        if outer and outer[1] == "print":
            text = printed(rest)
            found += [({name[0]}, f"str({call})", text)] if text else []
            continue
        link = re.match(SAID, rest)
        if link and "\n" not in link[0] and rest[link.end() :][:3] not in ('"""', "'''", ">>>"):
            value = literal(rest[link.end() :])
            is_wrong = (
                value and not re.search("should|must", link[0]) and re.match(CORRECTED, rest[link.end() + value[1] :])
            )
            if value and not is_wrong:
                found.append(({name[0]}, f"{outer[1]}({call})" if outer else call, value[0]))
    long = [each for each in found if any(len(name) > 1 for name in each[0])]  # "where F(0) = 1" is no example then
    return long or found


def headed_samples(prompt: str) -> list[tuple[str, str]]:
    """Return the samples of a prompt under headers: input and output."""
    parts: list[tuple[str, bool, list[str]]] = []
    is_open, is_fenced, is_inline, before = False, False, False, ""
    for line in prompt.split("\n")[:3000]:
        bare = line.strip(" \t>")
        header = None if is_fenced else re.match(HEADER, line[:3000])
        if header:
            sure = bool(
                header[1] or header[3] or re.search(r"(?i)\b(?:sample|example)", before) or (parts and parts[-1][1])
            )
            first = (header[4] or "").strip().strip("`*")
            parts.append((header[2].lower(), sure, [first] if first else []))
            is_open, is_inline = True, bool(first)
        elif is_open:
            lines = parts[-1][2]
            is_fence = bare.startswith("```")
            is_text = re.match(r"(?i)\W{0,9}(?:explanation|note|constraint|example|sample|hint|limit|case|test)", line)
            is_after = (
                parts[-1][0] == "out"
                and lines
                and (not bare or (is_inline and len(re.findall(r"[A-Za-z]{2,}", bare)) > 3))
            )
            if (is_fence and lines) or (not is_fenced and (is_text or is_after)):
                is_open = is_fenced = False
            elif is_fence:
                is_fenced = not is_fenced
            elif bare or lines:
                lines.append(line.rstrip())
        before = line if bare else before
    pairs = [(a, b) for a, b in pairwise(parts) if (a[0], b[0]) == ("in", "out")]
    pairs = [(a, b) for a, b in pairs if a[1] or b[1]] or pairs
    return [(dedent("\n".join(a[2])).strip("\n"), dedent("\n".join(b[2])).strip("\n")) for a, b in pairs]


def samples_in(prompt: str) -> list[tuple[str, str]]:
    """Return the samples of a prompt: input and output."""
    texts = headed_samples(prompt) or re.findall(r"(?i)\binput: *([^\n]{1,500}?)[ ,;.]*\boutput: *([^\n]+)", prompt)
    if not texts:
        said = r"(?i)\binput (?:of |is )?([^\n]{1,80}?),? (?:the |your )?output (?:is|(?:should|must|will) be) "
        after = [(found[1].strip("`"), prompt[found.end() :][:3000].lstrip("`")) for found in re.finditer(said, prompt)]
        for line in prompt.split("\n"):
            given, arrow, wanted = re.sub(r"[-=]>|[→➞⇒⟶]", "\0", line, count=1).partition("\0")
            given, wanted = given.strip(" \t-*`"), wanted.strip(" \t`")
            after += [(given, wanted)] if arrow and arguments(given) else []
        texts = [(given, wanted[: value[1]]) for given, wanted in after if (value := literal(wanted))]
    kept = [(given, wanted) for given, wanted in texts if wanted.strip() and not is_prose(f"{given}\n{wanted}")]
    return kept if "```" in prompt else [(spaced(given), spaced(wanted)) for given, wanted in kept]


def session_in(prompt: str) -> tuple[list[str], list[Any], set[str], str]:
    """Return the statements of interactive sessions, which keep results in `_results`, the results, the functions that they
    call, and the rest of a prompt."""
    rest, *parts = re.split(r"(?m)^[ \t]*>>> ?", prompt)
    statements: list[str] = []
    originals: list[str] = []
    results: list[Any] = []
    for part in parts:
        first, *lines = part.split("\n")
        more = [line.strip()[4:] for line in takewhile(lambda line: line.strip().startswith("..."), lines)]
        lines = lines[len(more) :]
        shown = [*takewhile(lambda line: re.match(END_OF_SHOWN, line) is None, (line.strip() for line in lines))]
        rest += "\n" + "\n".join(lines[len(shown) :])
        statement, value = "\n".join([first.strip(), *more]), literal("\n".join(shown))
        module = re.match(r"(?:from|import) (\w+)", statement)
        if module and module[1] not in sys.stdlib_module_names:  # the code of the response
            continue
        originals.append(statement)
        num_results = len(results)
        args = re.fullmatch(r"print\((.*)\)", statement)
        if shown[:1] and shown[0].startswith("Traceback"):
            results.append(shown[-1].partition(":")[0].rpartition(".")[2])
            inner = statement.replace("\n", "\n    ")
            keeps = "_results.append(type(error).__name__)"
            statement = f"try:\n    {inner}\nexcept Exception as error:\n    {keeps}\nelse:\n    _results.append(None)"
        elif args and shown:
            results.append(shown)
            text = f"' '.join(map(str, ({args[1]},)))"
            statement = f"_results.append([line.strip() for line in {text}.rstrip().splitlines()])"
        elif value:
            results.append(sendable(value[0]))
            statement = f"_results.append(_value({statement}\n))"
        if parsed(statement) is None:
            originals.pop()
            del results[num_results:]
            rest += f"\n{part}"
            continue
        statements.append(statement)
    tree = parsed("\n".join(originals))
    names = called_in(tree) if tree and results else None
    return (statements, results, names, rest) if names else ([], [], set(), prompt)


def spaced(text: str) -> str:
    """Return a text without its empty lines if every other line is empty."""
    lines = text.split("\n")
    doubled = len(lines) > 2 and not any(map(str.strip, lines[1::2]))
    return "\n".join(lines[::2]) if doubled else text


def is_prose(text: str) -> bool:
    """Return whether a line is a sentence, such as a description of the input."""
    return any(len(re.findall(r"[A-Za-z]{2,}", line)) > 5 and line.rstrip()[-1:] in ".:;" for line in text.split("\n"))


def code_of(response: str, names: set[str]) -> str:
    """Return the code of a response.

    Of several blocks of Python it is the last one that defines one of the names, after the definitions of the blocks before
    it. If there is none, it is the longest block.
    """
    blocks: list[tuple[str, list[str]]] = []
    fence, indent = "", 0
    for line in response.split("\n"):
        mark = re.match(r"([ \t>]*)(`{3,}(?=[^`]*$)|~{3,})[ \t]*([\w+#]*)", line)
        if mark and not fence:
            fence, indent = mark[2], len(mark[1])
            blocks.append((mark[3].lower(), []))
        elif mark and mark[2].startswith(fence):
            fence = ""
        elif fence:
            blocks[-1][1].append(line[min(indent, len(line) - len(line.lstrip(" \t>"))) :])
    if not blocks:
        return without_prose(response)
    python = ["\n".join(lines) for tag, lines in blocks if tag in ("py", "python", "python2", "python3")]
    python = python or [code for tag, lines in blocks if not tag and parsed(code := "\n".join(lines))]
    any_name = "|".join(map(re.escape, names)) or "(?!)"
    defines = re.compile(rf"(?m)^(?:[ \t]*(?:async )?(?:def|class) (?:{any_name})\b|(?:{any_name})\b[ \t]*[:=])")
    places = [at for at, code in enumerate(python) if defines.search(code)]
    if not places:
        return max(
            python,
            key=lambda code: (bool(re.search(r"\b(?:def|class|import|print|input)\b", code)), len(code)),
            default="",
        )
    before = [
        code for code in python[: places[-1]] if re.search(r"(?m)^(?:def|class|import|from)\b", code) and parsed(code)
    ]
    return "\n\n".join([*before, python[places[-1]]])


def without_prose(text: str) -> str:
    """Return the code of a text without fences: from its first line of code as far as it is valid Python."""
    lines = text.split("\n")
    start = next((at for at, line in enumerate(lines) if re.match(r"(?:def|class|import|from|async|@)\b", line)), None)
    if start is None or parsed(text):
        return text
    end = len(lines)
    for _ in range(9):
        try:
            ast.parse("\n".join(lines[start:end]))
            break
        except SyntaxError as error:
            end = start + min((error.lineno or 1), end - start) - 1
        except (ValueError, MemoryError, RecursionError):
            break
    return "\n".join(lines[start:end])


def arguments(text: str) -> list[Any] | None:
    """Return the values of a text such as `nums = [1, 2], k = 3` or `[1, 2], 3`."""
    values, at = [], 0
    while at < len(text):
        start = re.compile(r"[\s,;]*(?:[A-Za-z_]\w*\s*=\s*)?").match(text, at)
        value = literal(text[start.end() :]) if start else None
        if start is None or value is None:
            return None if text[at:].strip(" \n,;.`") else values
        values.append(value[0])
        at = start.end() + value[1]
    return values


def function_for(code: str, num_args: int, prompt: str) -> str:
    """Return what a sample calls: the last function that takes this number of arguments, if possible one that
    the prompt names. With a class `Solution` it is a method of it."""
    body = (parsed(code) or ast.Module([], [])).body
    solution = next((node for node in body if isinstance(node, ast.ClassDef) and node.name == "Solution"), None)
    fitting = []
    for node in solution.body if solution else body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("__"):
            most = len(node.args.args) - bool(solution)
            if node.args.vararg or most - len(node.args.defaults) <= num_args <= most:
                fitting.append(node.name)
    name = max(reversed(fitting), key=lambda name: name in prompt, default="")
    return f"Solution().{name}" if name and solution else name


def sendable(value: Any) -> Any:
    """Return a value as `_value` returns it."""
    if isinstance(value, (set, frozenset)):
        return {"set": [sendable(each) for each in sorted(value, key=repr)]}
    if isinstance(value, (list, tuple)):
        return [sendable(each) for each in value]
    return {str(key): sendable(each) for key, each in value.items()} if isinstance(value, dict) else value


def samples_or_error(prompt: str) -> list[tuple[str, str]]:
    """Return the samples of a prompt.

    Raises:
        ValueError: it has none, or functions cannot be called with their input as it is, or return nothing.
    """
    found = samples_in(prompt)[:MAX_CASES]
    if not found or re.search(r"\b(?:ListNode|TreeNode)\b|\b(?:head|root) ?= ?\[|(?i:\bin[- ]place\b)", prompt):
        raise ValueError("the prompt has no example")
    return found


def sample_case(code: str, given: str, wanted: str, prompt: str) -> tuple[str, Any] | None:
    """Return the call of a sample, and its result; None if the code has to read the input."""
    values, value = arguments(given), literal(wanted)
    is_asked = re.search(r"(?i)std ?in|standard input|sample input|\bprogram\b|\bprint", prompt)
    reads = re.search(r"(?m)^[^#\n]*(?:\binput\(|\bstdin\b|\bopen\(0)", code)
    if (is_asked or reads) and not (values and "=" in given):
        return None
    values = [given] if values is None else values
    function = function_for(code, len(values), prompt)
    if not function:
        return None
    return f"{function}({', '.join(map(repr, values))})", value[0] if value else wanted


def cases_for(code: str, prompt: str, shown: Shown, samples: list[tuple[str, str]]) -> tuple[str, list[dict[str, Any]]]:
    """Return the code with a function that returns the results of all calls, and the cases."""
    statements, results, calls = [*shown[0]], [*shown[1]], [(expression, value) for _, expression, value in shown[2]]
    cases: list[dict[str, Any]] = []
    for given, wanted in samples:
        call = sample_case(code, given, wanted, prompt)
        if call:
            calls.append(call)
        else:
            cases.append({"stdin": given + "\n", "stdout": wanted + "\n"})
    for expression, value in calls:
        is_free = isinstance(value, list) and re.search(r"(?i)\bany order\b", prompt)
        results.append(sendable(sorted(value, key=repr) if is_free else value))
        expression = f"sorted({expression}, key=repr)" if is_free else expression
        statements.append(f"_results.append(_value({expression}))")
    if statements:
        body = "\n".join(statements).replace("\n", "\n    ")
        code += f"{VALUE}\n\ndef _all_results():\n    _results = []\n    {body}\n    return _results\n"
        cases.append({"call": "_all_results", "returns": results})
    return code, cases


def with_methods(code: str, names: set[str]) -> str:
    """Return the code with functions that call methods of its class `Solution`."""
    for name in names if re.search(r"(?m)^class Solution\b", code) else ():
        if re.search(rf"(?m)^[ \t]+(?:async )?def {name}\b", code) and not re.search(rf"(?m)^def {name}\b", code):
            code += f"\n\ndef {name}(*args, **kwargs):\n    return Solution().{name}(*args, **kwargs)\n"
    return code


def completed(code: str, prompt: str, names: set[str]) -> str:
    """Return the code with the usual imports, and a mere function body with the head that the prompt shows.

    The functions that the prompt asks for are not imported: a response must define them.
    """
    is_body = re.match(r"(?:[ \t]*\n)*[ \t]+\S", code) and not re.search(r"(?m)^(?:def|class)\b", code)
    head = re.search(r"(?:\bdef |`)([A-Za-z_]\w*\([^`\n]*\)(?:\s*->\s*[^`\n:]+)?)", prompt) if is_body else None
    if head:
        code = f"def {head[1]}:\n{code.strip(chr(10))}\n"
    undefined = "".join(f"{name} = None\n" for name in sorted(names))
    return code if "from __future__" in code else IMPORTS + undefined + code


def examples(r: str, prompt: str) -> bool:
    """Return whether the code of a response does what all examples of the prompt show.

    A response cannot make this fail: only the prompt can. So it cannot keep others from being checked either.

    Raises:
        ValueError: the prompt has no example, or it asks for a language other than Python.
    """
    prompt = re.sub(r"(?i)(?<=[.)\]:!?$\"])\s*(?=sample input)", "\n", prompt[:MAX_CHARS].replace("\r", ""))
    if re.search(OTHER_LANGUAGE, prompt) and not re.search(r"(?i)python|\bdef ", prompt):
        raise ValueError("the prompt does not ask for Python")
    statements, results, names, rest = session_in(prompt)
    calls = calls_in(rest)[:MAX_CASES]
    samples = [] if calls or results else samples_or_error(prompt)
    names |= {name for each, _, _ in calls for name in each}
    code = with_methods(completed(code_of(r[:MAX_CHARS], names), prompt, names), names)
    code, cases = cases_for(code, prompt, (statements, results, calls), samples)
    fence = "~" * 200  # the tool looks for blocks in a code: this is the one
    code = f"{fence}python\n{code}\n{fence}"
    seconds = max(2.0, SECONDS / len(cases))
    return all(tests(code, [case], timeout_s=seconds).all_passed for case in cases)
