"""Run a grader. Code given as text never runs in this process: the server runs it in a separate program.

In the program, this text follows `literals.py`. A program cannot wait for the server. So the grader stops where it needs an
answer, and is run again from its beginning with the answers so far: `given["answers"]`, in the order of the questions.
"""

# The text of `literals.py` comes first in the program, so names of that file are defined.

import ast
import builtins
import numbers
import random
import sys
import sysconfig
import types

given = json.loads(globals()["_given"])
tell_server = tell

INSTEAD = "use run(code, stdin=...), which runs a whole program and returns its .stdout; docs/openai.md has other ways"
LIBRARIES = frozenset({"ast", "collections", "dataclasses"})
"""Modules that may call `exec`, `eval` and `compile`. They compile only names that they have checked, or compile no code."""

IMPORTERS = frozenset(
    {"importlib._bootstrap", "importlib._bootstrap_external", "_frozen_importlib", "_frozen_importlib_external"}
)
TRUSTED_PATHS = tuple({*sysconfig.get_paths().values(), *sys.path} - {"", ".", "/tmp", os.getcwd()})
SYMPY = "sympy.parsing.sympy_parser"
ARITHMETIC = (
    ast.Expression,
    ast.Call,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.UnaryOp,
    ast.BinOp,
    ast.BoolOp,
    ast.Compare,
)
ARITHMETIC += (ast.Tuple, ast.List, ast.Dict, ast.keyword, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
HARMLESS = frozenset(
    {"abs", "complex", "divmod", "float", "int", "len", "max", "min", "pow", "round", "sum", "Ellipsis"}
)
BLOCKED = frozenset(
    {
        "function.__new__",
        "pickle.find_class",
        "subprocess.Popen",
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "cpython.PyInterpreterState_New",
    }
)

channel = os.dup(1)
os.dup2(2, 1)
# `channel` is a copy of stdout for the result alone: printed text goes to stderr from here on.
run_text, evaluate, make_code = builtins.exec, builtins.eval, builtins.compile
expected = []  # calls of `exec` and `eval` that this file is about to make, for a library or for the grader
num_asked = 0
spaces = {}
arguments = ()
namespace = {}


class Text:
    """Result of `compile`: source text with a checked syntax. It cannot run in this process."""

    def __init__(self, text, mode):
        self.text, self.mode = text, mode


class Ran:
    """Result of a program."""

    def __init__(self, result):
        self.outcome, self.stdout, self.stderr = result["outcome"], result["stdout"], result["stderr"]
        self.error, self.exit_code = result["error"], result["exit_code"]

    @property
    def ok(self):
        """Whether the program ran to its end."""
        return self.outcome == "ok"

    def __repr__(self):
        return f"Ran(outcome={self.outcome!r}, stdout={self.stdout!r}, error={self.error!r})"


class SampleFailed(RuntimeError):
    """Code of the sample failed, or its result cannot be passed to the grader."""


def ask(question):
    """Return the server's answer to a question. Without an answer yet, send the question and exit."""
    global num_asked
    answers, num_asked = given["answers"], num_asked + 1
    if num_asked > len(answers):
        tell_server(channel, given["marker"], {"question": question})
    earlier_question, answer = answers[num_asked - 1]
    if earlier_question != question:
        message = "the grader requested another program when it was run again with the same sample"
        raise SampleFailed(f"{message}; it must depend on its arguments only")
    return answer


def run(code, *, stdin=""):
    """Run a program in a separate process."""
    if not isinstance(code, str) or not isinstance(stdin, str):
        raise TypeError("run: code and stdin must be strings")
    return Ran(ask({"kind": "run", "code": code, "stdin": stdin}))


class Value:
    """Placeholder for a value of the sample that cannot be encoded. Using it raises `SampleFailed`."""

    def __init__(self, name):
        self.__dict__["_name"] = name

    def __getattr__(self, name):
        raise SampleFailed(f"{self._name} is not a plain value and stays in the program of the sample; {INSTEAD}")

    def __bool__(self) -> bool:
        return self.__getattr__("truth")

    def __eq__(self, other) -> bool:
        return self.__getattr__("equality")

    __hash__ = object.__hash__


class Function(Value):
    """A function of the sample. Each call runs a separate program, with plain values as arguments and result."""

    def __init__(self, name, steps):
        super().__init__(name)
        self.__dict__.update(_steps=steps, __name__=name)

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __call__(self, *arguments, **named):
        step = {"kind": "call", "text": self._name, "variables": {}, "arguments": plain([list(arguments), named])}
        result = work([*self._steps, step])
        changed, changed_named = decoded(result["arguments"])
        for before, after in [
            *zip(arguments, changed, strict=True),
            *((named[name], changed_named[name]) for name in named),
        ]:
            if type(before) is list:
                before[:] = after
            elif type(before) in (dict, set):
                before.clear()
                before.update(after)
        return decoded(result["value"])


def plain(value):
    """Encode a value for code of the sample."""
    try:
        return encoded(value)
    except NoLiteral as error:
        raise SampleFailed(f"code of the sample takes only plain values, {error}; {INSTEAD}") from None


_NOT_RAISED = (UnicodeError, StopIteration, StopAsyncIteration)
"""Errors that are not raised again here: their constructors take other arguments, or they would silently end a loop."""


def work(steps):
    """Run steps of the sample's code. Return the result of the last one, or raise its error."""
    result = ask({"kind": "steps", "steps": steps})
    if result.get("stdout"):
        sys.stdout.write(result["stdout"])
    if result["error"] is None:
        return result
    kind, message = result["error"]
    if kind == "NoLiteral":
        raise SampleFailed(f"the result is not a plain value, {message}; {INSTEAD}")
    known = getattr(builtins, kind, None)
    if isinstance(known, type) and issubclass(known, Exception) and not issubclass(known, _NOT_RAISED):
        raise known(message)
    raise SampleFailed(f"{kind}: {message}")


class Space:
    """A namespace for code of the sample: a dict from the grader, or the grader's own variables.

    Attributes:
        values: Variables that `exec` reads and writes.
        steps: Steps that ran in the namespace.
        made: Names that these steps defined.
    """

    def __init__(self, values, *, is_own, frame=None):
        self.values, self.steps, self.made = values, [], set()
        self._is_own = is_own
        self._frame = frame  # keeps the frame alive, so that no other frame gets its id and finds this namespace

    def variables(self):
        """Return the plain variables, encoded, without the grader's arguments and the grader's own module."""
        found = {}
        for name, value in {} if self.values is namespace else dict(self.values).items():
            if isinstance(name, str) and not name.startswith("__") and not any(value is given for given in arguments):
                try:
                    found[name] = encoded(value)
                except (NoLiteral, RecursionError):
                    continue
        return found

    def take(self, result):
        """Store the variables that the code defined. Names of the grader's own module are not replaced."""
        made = {name: decoded(value) for name, value in result["variables"].items()}
        made |= {name: Function(name, list(self.steps)) for name in result["functions"]}
        made |= {name: Value(name) for name in result["others"]}
        for name, value in made.items():
            is_free = name in self.made or not (name in self.values or name in vars(builtins))
            if not name.startswith("__") and (is_free or not self._is_own):
                self.values[name] = value
                self.made.add(name)


def space_of(frame, places, named):
    """Return the namespace of a call of `exec` or `eval`."""
    for values in (named.get("locals"), *reversed(places[:2]), named.get("globals")):
        if values is not None:
            return spaces.setdefault(id(values), Space(values, is_own=values is namespace))
    values = frame.f_locals
    return spaces.setdefault(id(frame), Space(values, is_own=True, frame=frame))


def text_of(source, mode):
    """Return the source text of an argument of `exec`, `eval` or `compile`. Invalid syntax raises SyntaxError."""
    if isinstance(source, Text):
        if source.mode not in (mode, "eval"):
            raise SampleFailed(f"{mode}: code that was compiled for {source.mode} given")
        return source.text
    if isinstance(source, ast.AST):
        return ast.unparse(source)
    if isinstance(source, bytes | bytearray):
        source = bytes(source).decode()
    if not isinstance(source, str):
        raise SampleFailed(f"{mode}: a {type(source).__name__} cannot be run here; {INSTEAD}")
    text = source.lstrip(" \t") if mode == "eval" else source
    make_code(text, "<string>", mode, ast.PyCF_ONLY_AST)
    return text


def passed(function, *arguments):
    """Call the original `exec` or `eval`."""
    num_expected = len(expected)
    expected.append(function)
    try:
        return function(*arguments)
    finally:
        del expected[num_expected:]


def is_library(frame, arguments):
    """Whether the caller is a trusted standard library module, or an import from a folder that programs cannot write."""
    name = frame.f_globals.get("__name__")
    if name in IMPORTERS and arguments and isinstance(arguments[0], dict):
        origin = getattr(arguments[0].get("__spec__"), "origin", None) or ""
        return origin in ("frozen", "built-in") or origin.startswith(TRUSTED_PATHS)
    return name in LIBRARIES or (name in IMPORTERS and not arguments)


def check_caller(frame):
    """Refuse calls from modules other than the grader."""
    if frame.f_globals is not namespace:
        name = frame.f_globals.get("__name__")
        raise SampleFailed(f"{name} tries to run code in the grader's process, which is not allowed; {INSTEAD}")


def exec_apart(source, /, *places, **named):
    """`exec` in a separate program. Variables and functions that the code defines are in the namespace afterwards."""
    frame = sys._getframe(1)
    if is_library(frame, places) or (frame.f_globals.get("__name__") == SYMPY and source == "from sympy import *"):
        return passed(run_text, source, *places)
    check_caller(frame)
    space = space_of(frame, places, named)
    step = {"kind": "exec", "text": text_of(source, "exec"), "variables": space.variables()}
    space.steps.append(step)
    space.take(work(list(space.steps)))
    return None


def eval_apart(source, /, *places, **named):
    """`eval` in a separate program. Returns the value if it is a plain one."""
    frame = sys._getframe(1)
    if is_library(frame, ()):
        return passed(evaluate, source, *places)
    if frame.f_globals.get("__name__") == SYMPY:
        return passed(evaluate, arithmetic(source), *places)
    check_caller(frame)
    text = text_of(source, "eval")
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        pass
    space = space_of(frame, places, named)
    step = {"kind": "eval", "text": text, "variables": space.variables()}
    return decoded(work([*space.steps, step])["value"])


def arithmetic(source):
    """Compile an expression that sympy generated from a text, if it only calls sympy's functions by name.

    Attributes, subscripts and Python's built-in functions are refused, because they give access beyond sympy.
    """
    text = source.text if isinstance(source, Text) else source
    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        is_named = isinstance(node, ast.Name) and (node.id.startswith("_") or node.id in vars(builtins))
        if not isinstance(node, ARITHMETIC) or (is_named and node.id not in HARMLESS):
            raise SampleFailed(f"sympy: the text contains more than arithmetic; {INSTEAD}")
    return make_code(tree, "<string>", "eval")


def compile_apart(source, filename="<string>", mode="exec", flags=0, *others, **named):
    """`compile`: checks the syntax. Returns a `Text` for `exec` and `eval`."""
    frame = sys._getframe(1)
    flags = named.pop("flags", flags)
    if flags & ast.PyCF_ONLY_AST or is_library(frame, ()):
        return make_code(source, filename, mode, flags, *others, **named)
    return Text(text_of(source, mode), mode)


def watch(event, arguments):
    """Audit hook. Blocks code that bypasses the functions above."""
    if event == "exec":
        if not expected:
            raise SampleFailed(f"code must not run in the grader's process; {INSTEAD}")
        expected.pop()
    if event in BLOCKED:
        raise SampleFailed(f"{event}: not allowed in the grader's process; {INSTEAD}")


def reward_of(value):
    """Check that a result is a finite number. Other types are not converted.

    Raises:
        TypeError, ValueError, OverflowError: The result is not a finite number.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"grade returned a {type(value).__name__}; expected: a number, such as float(...)")
    reward = float(value)
    if reward != reward or reward in (float("inf"), float("-inf")):
        raise ValueError(f"grade returned {reward}; expected: a finite number")
    return reward


random.seed(given["seed"])
main = types.ModuleType("__main__")
sys.modules["__main__"] = main
namespace = main.__dict__
namespace["run"] = run
code = make_code(given["source"], "grader.py", "exec")
arguments = json.loads(given["sample"]), json.loads(given["item"])
builtins.exec, builtins.eval, builtins.compile = exec_apart, eval_apart, compile_apart
sys.addaudithook(watch)
try:
    passed(run_text, code, namespace)
    if "grade" not in namespace:
        raise NameError("name 'grade' is not defined")
    reward = reward_of(namespace["grade"](*arguments))
except BaseException:
    sys.stdout.flush()  # so that the error is the last line of the output
    raise
tell_server(channel, given["marker"], {"reward": reward})
