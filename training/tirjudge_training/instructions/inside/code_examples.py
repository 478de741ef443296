"""Tests from the examples that a prompt for code shows.

Calls with their results are understood in the layouts that people use: `>>> f(1)` with the result on the next line,
`assert f(1) == 2`, `f(1) -> 2`, `f(1) should return 2`. So are samples of input and output, for programs that read the
standard input and for functions whose arguments are named (`nums = [1, 2], k = 3`). The candidate runs with `tests`, in a
process of its own.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    tests: Callable[..., Any]

# Program
import ast
import re
from itertools import pairwise
from typing import Any

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
    r"(?:be|is|return|give|yield|output|produce|evaluate to|evaluates to|equal|become)s?:?\s+"
    r"|\s*(?:[-=]{1,3}>|===?|=|[→➞⇒⟶]|:|\#\s*(?:[-=]{0,2}>|returns|gives|:)?|//)\s*"
    r"|\s*\n\s*)(?:(?:the|a|an) (?:list|string|number|value|tuple|dict\w*|set|boolean|integer)\s+)?`?"
)
LITERAL = (
    r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w)(?!\.\w)"
    r"|(?:set|sorted|list|tuple|frozenset|dict)\(|(?:True|False|None|true|false|null)\b"
)
IMPORTS = (
    "import bisect, collections, functools, heapq, itertools, math, random, re, string, sys\n"
    "from typing import *\nfrom collections import *\nfrom functools import *\nfrom itertools import *\n"
    "from heapq import *\nfrom bisect import *\nfrom math import *\n"
)
HEADER = (
    r"(?i)[\s*_#>`-]*(sample |example )?\s*#?\d*\W{0,3}(in|out)put\b\s*#?(\d*)"
    r"\s*(?:for (?:sample|example)\s*\d*)?[\s*_`]*(?:[:=][\s*_`]*(.*)|)$"
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
    try:
        value = ast.literal_eval(source[wrap.end() : -1] or "()" if wrap else source)
        return {"set": frozenset, "frozenset": frozenset, "sorted": sorted}.get(wrap[1] if wrap else "", lambda x: x)(
            value
        ), end
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
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


def calls_in(prompt: str) -> list[tuple[str, str, Any]]:
    """Return calls with their results: the name of the function, the expression to compute, the result."""
    found: list[tuple[str, str, Any]] = []
    for name in [
        *re.finditer(r"(?<![\w.])(?!print\b|isclose\b|range\b|len\b|set\b|sorted\b)[A-Za-z_]\w*(?= ?\()", prompt)
    ][:500]:
        line = prompt[prompt.rfind("\n", 0, name.start()) + 1 : name.start()]
        bracket = prompt.index("(", name.end())
        call = call_at(prompt, name.start(), bracket)
        if call is None or (bracket > name.end() and "assert" not in line and ">>>" not in line):
            continue
        outer = re.search(r"\b(set|sorted|list|tuple|len|frozenset)\($", line)
        if re.search(r"\b(?:def|class)\s+$|print\($", line) or (
            line.endswith("(") and not outer and "assert (" not in line and "isclose(" not in line
        ):
            continue
        rest = prompt[name.start() + len(call) :][:4000]
        expression = f"{outer[1]}({call})" if outer else call
        close = re.match(r"\s*,\s*([-+\d.eE]+)[^\n]*\)", rest) if "isclose(" in line else None
        if close:
            found.append((name[0], f"abs({call} - {close[1]}) <= 1e-3 * abs({close[1]})", True))
            continue
        claim = re.search(r"\bassert\s+(not\s+)?\(?$", line)
        said = re.match(r"\)?\s*(?:\bis (True|False)\b|,|\#|\n|$)", rest) if claim else None
        if claim and said:
            found.append((name[0], expression, (said[1] != "False") != bool(claim[1])))
            continue
        link = re.match(SAID, rest)
        if link and ("\n" not in link[0] or ">>>" in line) and rest[link.end() :][:3] not in ('"""', "'''", ">>>"):
            value = literal(rest[link.end() :])
            if value:
                found.append((name[0], expression, value[0]))
    return found


def samples_in(prompt: str) -> list[tuple[str, str]]:
    """Return the samples of a prompt: input and output."""
    parts: list[tuple[str, bool, list[str]]] = []
    is_open, before = False, ""
    for line in prompt.split("\n")[:3000]:
        header = re.match(HEADER, line[:300])
        if header:
            sure = bool(header[1] or header[3] or re.search(r"(?i)\b(?:sample|example)", before))
            first = (header[4] or "").strip().strip("`*")
            parts.append((header[2].lower(), sure, [first] if first else []))
            is_open = True
        elif is_open:
            lines = parts[-1][2]
            is_fence = line.strip().startswith("```")
            is_text = bool(
                re.match(r"(?i)\W{0,9}(?:explanation|note|constraint|example|sample|hint|limit|case|test)", line)
            )
            ends_output = parts[-1][0] == "out" and not line.strip() and bool(lines)
            if ends_output or is_text or (is_fence and lines):
                is_open = False
            elif not is_fence and (line.strip() or lines):
                lines.append(line.rstrip())
        before = line if line.strip() else before
    pairs = [(a, b) for a, b in pairwise(parts) if (a[0], b[0]) == ("in", "out")]
    pairs = [(a, b) for a, b in pairs if a[1] or b[1]] or pairs
    texts = [("\n".join(a[2]).strip(), "\n".join(b[2]).strip()) for a, b in pairs]
    if not pairs:
        texts = re.findall(r"(?i)\binput: *([^\n]{1,500}?)[ ,;.]*\boutput: *([^\n]+)", prompt)
    kept = [(given, wanted) for given, wanted in texts if wanted and not is_prose(f"{given}\n{wanted}")]
    return [(spaced(given), spaced(wanted)) for given, wanted in kept]


def session_in(prompt: str) -> tuple[list[str], list[Any]] | None:
    """Return the statements of an interactive session that keep its results in `_results`, and the results."""
    lines = [line.strip() for line in prompt.split("\n")]
    statements: list[str] = []
    results: list[Any] = []
    for line, after in pairwise([*lines, ""]):
        if not line.startswith(">>> "):
            continue
        statement, shown = line[4:].strip(), literal(after)
        printed = re.fullmatch(r"print\((.*)\)", statement)
        is_result = (
            bool(after) and not after.startswith((">>>", '"""', "'''")) and (printed is not None or shown is not None)
        )
        if is_result:
            results.append(after if printed or shown is None else plain(shown[0]))
            statement = f"_results.append({f'str({printed[1]})' if printed else statement})"
        try:
            ast.parse(statement)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
        statements.append(statement)
    return (statements, results) if results else None


def spaced(text: str) -> str:
    """Return a text without its empty lines if every other line is empty."""
    lines = text.split("\n")
    doubled = len(lines) > 2 and not any(map(str.strip, lines[1::2]))
    return "\n".join(lines[::2]) if doubled else text


def is_prose(text: str) -> bool:
    """Return whether a line is a sentence, such as a description of the input."""
    return any(len(re.findall(r"[A-Za-z]{2,}", line)) > 5 and line.rstrip()[-1:] in ".:;" for line in text.split("\n"))


def code_of(response: str) -> str:
    """Return the code of a response: its longest block of Python, or all of it."""
    blocks: list[tuple[str, list[str]]] = []
    fence = ""
    for line in response.split("\n"):
        mark = re.match(r"\s*(`{3,}|~{3,})\s*([\w+#]*)", line)
        if mark and not fence:
            fence = mark[1]
            blocks.append((mark[2].lower(), []))
        elif mark and mark[1].startswith(fence):
            fence = ""
        elif fence:
            blocks[-1][1].append(line)
    python = ["\n".join(lines) for tag, lines in blocks if tag in ("", "py", "python", "python2", "python3")]
    if blocks:
        return max(python, key=len, default="")
    return without_prose(response)


def without_prose(text: str) -> str:
    """Return the code of a text without fences: from its first line of code as far as it is valid Python."""
    lines = text.split("\n")
    first = next((at for at, line in enumerate(lines) if re.match(r"(?:def|class|import|from|async|@)\b", line)), None)
    for start in (0, first):
        for end in [*range(len(lines), 0, -1)][: 1 if start == 0 else 60]:
            try:
                ast.parse("\n".join(lines[start:end]))
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
            return "\n".join(lines[start:end])
        if first is None:
            break
    return text


def named_arguments(text: str) -> list[Any] | None:
    """Return the values of a text such as `nums = [1, 2], k = 3`."""
    values, at = [], 0
    while at < len(text):
        name = re.compile(r"[\s,;]*[A-Za-z_]\w*\s*=\s*").match(text, at)
        value = literal(text[name.end() :]) if name else None
        if name is None or value is None:
            return None if text[at:].strip(" \n,;.`") else values
        values.append(value[0])
        at = name.end() + value[1]
    return values


def plain(value: Any) -> Any:
    """Return a value as JSON has it. A set is its sorted list."""
    if isinstance(value, (set, frozenset)):
        return [plain(each) for each in sorted(value, key=repr)]
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return {str(key): plain(each) for key, each in value.items()} if isinstance(value, dict) else value


def cases_for(code: str, prompt: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the code with one function for each case that calls it, and the cases.

    Raises:
        ValueError: the prompt has no example.
    """
    method = re.search(r"\bclass Solution\b[\s\S]{0,2000}?\n[ \t]+def (\w+)\(\s*self", code[:30_000])
    functions = re.findall(r"(?m)^(?:async )?def (\w+)", code)
    prefix = "Solution()." if method else ""
    last = method[1] if method else functions[-1] if functions else ""
    found = calls_in(prompt)[:MAX_CASES]
    session = None if found else session_in(prompt)
    samples = [] if found or session else samples_in(prompt)[:MAX_CASES]
    if not (found or session or samples):
        raise ValueError("the prompt has no example")
    calls, cases = [], []
    for name, expression, value in found:
        inner = f"{prefix}{name}(" if method and name not in functions else f"{name}("
        calls.append((expression.replace(f"{name}(", inner, 1), value))
    if session:
        body = "".join(f"    {statement}\n" for statement in session[0])
        code += f"\n\ndef _session():\n    _results = []\n{body}    return _results\n"
        cases.append({"call": "_session", "returns": session[1]})
    for given, wanted in samples:
        values, value = named_arguments(given), literal(wanted)
        if values and value and last and not re.search(r"\binput\(|\bstdin\b|\bopen\(0", code):
            calls.append((f"{prefix}{last}({', '.join(map(repr, values))})", value[0]))
        elif not values:
            cases.append({"stdin": given + "\n", "stdout": wanted + "\n"})
    for number, (expression, value) in enumerate(calls):
        shown = f"sorted({expression}, key=repr)" if isinstance(value, (set, frozenset)) else expression
        code += f"\n\ndef _case_{number}():\n    return {shown}\n"
        cases.append({"call": f"_case_{number}", "returns": plain(value)})
    return code, cases


def completed(code: str, prompt: str) -> str:
    """Return the code with the usual imports, and a mere function body with the head that the prompt shows."""
    is_body = re.match(r"(?:[ \t]*\n)*[ \t]+\S", code) and not re.search(r"(?m)^(?:def|class)\b", code)
    head = re.search(r"(?:\bdef |`)([A-Za-z_]\w*\([^`\n]*\)(?:\s*->\s*[^`\n:]+)?)", prompt) if is_body else None
    if head:
        code = f"def {head[1]}:\n{code.strip(chr(10))}\n"
    return code if "from __future__" in code else IMPORTS + code


def examples(r: str, prompt: str) -> bool:
    """Return whether the code of a response does what all examples of the prompt show.

    A response cannot make this fail: only the prompt can. So it cannot keep others from being checked either.

    Raises:
        ValueError: the prompt has no example, or it asks for a language other than Python.
    """
    prompt = re.sub(r"(?i)(?<=[.)\]:!?$\"])\s*(?=sample input)", "\n", prompt[:MAX_CHARS].replace("\r", ""))
    if re.search(OTHER_LANGUAGE, prompt) and not re.search(r"(?i)python|\bdef ", prompt):
        raise ValueError("the prompt does not ask for Python")
    code, cases = cases_for(completed(code_of(r[:MAX_CHARS]), prompt), prompt)
    return bool(cases) and all(tests(code, [case], timeout_s=SECONDS).all_passed for case in cases)
