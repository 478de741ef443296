"""Runs a grader. Code in texts never runs here: the server runs it in a program of its own, and tells what came of it.

It follows `literals.py` in one program. There is no way to ask the server and wait. So the grader stops where it needs an
answer, and is run again from its beginning with the answers so far: `given["answers"]`, in the order of the questions.
"""

# These programs are put together as text, and use what `literals.py` defines.
# pyright: basic, reportUndefinedVariable=false, reportArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportIndexIssue=false, reportOptionalMemberAccess=false, reportCallIssue=false

import ast
import builtins
import numbers
import random
import sys
import sysconfig
import types

given = json.loads(globals()["_given"])
tell_server = tell

INSTEAD = "run(code, stdin=...) runs a whole program and gives .stdout; docs/openai.md says what else can be done"
LIBRARIES = frozenset({"ast", "collections", "dataclasses"})
"""Modules that make code of names, which they check, or make none."""

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
# A copy: what is printed goes elsewhere, and the result is the only thing on this descriptor.
run_text, evaluate, make_code = builtins.exec, builtins.eval, builtins.compile
expected = []  # what is about to be started by this file: code of a library, or the grader
num_asked = 0
spaces = {}
arguments = ()
namespace = {}


class Text:
    """What `compile` gives: code that was read, and not turned into anything that could run here."""

    def __init__(self, text, mode):
        self.text, self.mode = text, mode


class Ran:
    """What came of a program."""

    def __init__(self, told):
        self.outcome, self.stdout, self.stderr = told["outcome"], told["stdout"], told["stderr"]
        self.error, self.exit_code = told["error"], told["exit_code"]

    @property
    def ok(self):
        """Whether it ran to its end."""
        return self.outcome == "ok"

    def __repr__(self):
        return f"Ran(outcome={self.outcome!r}, stdout={self.stdout!r}, error={self.error!r})"


class SampleFailed(RuntimeError):
    """Code of the sample ended, or gave something, that cannot be handed over."""


def ask(question):
    """The answer of the server, now or when the grader is run again."""
    global num_asked
    answers, num_asked = given["answers"], num_asked + 1
    if num_asked > len(answers):
        tell_server(channel, given["marker"], {"question": question})
    asked, answer = answers[num_asked - 1]
    if asked != question:
        message = "the grader asked for another program when it was run again with the same sample"
        raise SampleFailed(f"{message}; what it does must depend on its arguments alone")
    return answer


def run(code, *, stdin=""):
    """Run a program in a process of its own."""
    if not isinstance(code, str) or not isinstance(stdin, str):
        raise TypeError("run: code and stdin are texts")
    return Ran(ask({"kind": "run", "code": code, "stdin": stdin}))


class Value:
    """Something of the sample that is no literal, and stays where it is."""

    def __init__(self, name):
        self.__dict__["_name"] = name

    def __getattr__(self, name):
        raise SampleFailed(f"{self._name} stays in the program of the sample, and is no plain value; {INSTEAD}")

    def __bool__(self) -> bool:
        return self.__getattr__("truth")

    def __eq__(self, other) -> bool:
        return self.__getattr__("equality")

    __hash__ = object.__hash__


class Function(Value):
    """A function of the sample. Each call is a program of its own, and takes and gives plain values."""

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
        told = work([*self._steps, step])
        changed, changed_named = decoded(told["arguments"])
        for before, after in [
            *zip(arguments, changed, strict=True),
            *((named[name], changed_named[name]) for name in named),
        ]:
            if type(before) is list:
                before[:] = after
            elif type(before) in (dict, set):
                before.clear()
                before.update(after)
        return decoded(told["value"])


def plain(value):
    try:
        return encoded(value)
    except NoLiteral as error:
        raise SampleFailed(f"code of the sample takes plain values, {error}; {INSTEAD}") from None


_NOT_RAISED = (UnicodeError, StopIteration, StopAsyncIteration)
"""Errors that take other arguments, and those that would end a loop of the grader's own as if it were done."""


def work(steps):
    """What came of the last of some pieces of code."""
    told = ask({"kind": "steps", "steps": steps})
    if told.get("stdout"):
        sys.stdout.write(told["stdout"])
    if told["error"] is None:
        return told
    kind, message = told["error"]
    if kind == "NoLiteral":
        raise SampleFailed(f"the result stays in the program of the sample, {message}; {INSTEAD}")
    known = getattr(builtins, kind, None)
    if isinstance(known, type) and issubclass(known, Exception) and not issubclass(known, _NOT_RAISED):
        raise known(message)
    raise SampleFailed(f"{kind}: {message}")


class Space:
    """A namespace that code of the sample is run in: a dict that the grader gave, or its own variables.

    Attributes:
        values: what `exec` reads and writes.
        steps: the pieces of code that were run in it.
        made: names that these pieces made.
    """

    def __init__(self, values, *, is_own, frame=None):
        self.values, self.steps, self.made = values, [], set()
        self._is_own = is_own
        self._frame = frame  # kept, so that no later call gets its id, and with that this namespace

    def variables(self):
        """Its plain variables. The code is not shown what the grader was given, nor the grader's own module."""
        found = {}
        for name, value in {} if self.values is namespace else dict(self.values).items():
            if isinstance(name, str) and not name.startswith("__") and not any(value is given for given in arguments):
                try:
                    found[name] = encoded(value)
                except (NoLiteral, RecursionError):
                    continue
        return found

    def take(self, told):
        """Keep what the code made. It replaces nothing that the grader itself has."""
        made = {name: decoded(value) for name, value in told["variables"].items()}
        made |= {name: Function(name, list(self.steps)) for name in told["functions"]}
        made |= {name: Value(name) for name in told["others"]}
        for name, value in made.items():
            is_free = name in self.made or not (name in self.values or name in vars(builtins))
            if not name.startswith("__") and (is_free or not self._is_own):
                self.values[name] = value
                self.made.add(name)


def space_of(frame, places, named):
    """The namespace that a call of `exec` or `eval` means."""
    for values in (named.get("locals"), *reversed(places[:2]), named.get("globals")):
        if values is not None:
            return spaces.setdefault(id(values), Space(values, is_own=values is namespace))
    values = frame.f_locals
    return spaces.setdefault(id(frame), Space(values, is_own=True, frame=frame))


def text_of(source, mode):
    """The text of code; as Python does, refuse what is none."""
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
    """Call the real one."""
    num_expected = len(expected)
    expected.append(function)
    try:
        return function(*arguments)
    finally:
        del expected[num_expected:]


def is_library(frame, arguments):
    """Whether a module of Python itself, or an import from where programs cannot write, makes this call."""
    name = frame.f_globals.get("__name__")
    if name in IMPORTERS and arguments and isinstance(arguments[0], dict):
        origin = getattr(arguments[0].get("__spec__"), "origin", None) or ""
        return origin in ("frozen", "built-in") or origin.startswith(TRUSTED_PATHS)
    return name in LIBRARIES or (name in IMPORTERS and not arguments)


def check_caller(frame):
    if frame.f_globals is not namespace:
        raise SampleFailed(f"{frame.f_globals.get('__name__')} runs code, and none runs beside the grader; {INSTEAD}")


def exec_apart(source, /, *places, **named):
    """`exec`, elsewhere; variables and functions that the code made are in the namespace afterwards."""
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
    """`eval`, elsewhere; the value comes back if it is a plain one."""
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
    """An expression that sympy made of a text, if it only calls sympy's own functions by their names.

    Attributes, subscripts and functions of Python itself lead out of sympy, and are refused.
    """
    text = source.text if isinstance(source, Text) else source
    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        is_named = isinstance(node, ast.Name) and (node.id.startswith("_") or node.id in vars(builtins))
        if not isinstance(node, ARITHMETIC) or (is_named and node.id not in HARMLESS):
            raise SampleFailed(f"sympy: more than arithmetic in the text; {INSTEAD}")
    return make_code(tree, "<string>", "eval")


def compile_apart(source, filename="<string>", mode="exec", flags=0, *others, **named):
    """`compile`: reads the text, and gives what `exec` and `eval` take."""
    frame = sys._getframe(1)
    flags = named.pop("flags", flags)
    if flags & ast.PyCF_ONLY_AST or is_library(frame, ()):
        return make_code(source, filename, mode, flags, *others, **named)
    return Text(text_of(source, mode), mode)


def watch(event, arguments):
    """What runs code without passing through the functions above."""
    if event == "exec":
        if not expected:
            raise SampleFailed(f"no code runs beside the grader; {INSTEAD}")
        expected.pop()
    if event in BLOCKED:
        raise SampleFailed(f"{event}: not beside the grader; {INSTEAD}")


def reward_of(value):
    """A finite number, and nothing that merely could be turned into one.

    Raises:
        TypeError, ValueError, OverflowError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"grade gave a {type(value).__name__}; a number is needed, such as float(...)")
    reward = float(value)
    if reward != reward or reward in (float("inf"), float("-inf")):
        raise ValueError(f"grade gave {reward}; a finite number is needed")
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
    sys.stdout.flush()  # so that the reason is the last line of what is printed
    raise
tell_server(channel, given["marker"], {"reward": reward})
