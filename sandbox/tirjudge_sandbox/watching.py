"""Watch a judge's program for the execution of a candidate's text in the program's own process.

An audit hook (`sys.addaudithook`) sees each `compile`, `exec`, import, process start and use of ctypes before it happens. A
use that would execute a watched text is reported to the host, then allowed, or refused with an error. The report cannot be
taken back: it is in a socket that the process can only write to. What the executed text does afterwards does not matter.

What counts as execution of a watched text:

- code that the program itself compiles and executes, if a line of it is in a watched text, or is not written in the program;
- code that a module which runs code (`timeit`, `doctest`, ...) executes for the program, likewise;
- code that another library executes, if more than half of its lines are in a watched text. SymPy evaluates expressions:
  there only names of functions that do more than compute, and double underscores, count;
- code from a file in the working directory, whose origin is unknown, or whose code object the program has changed;
- an object in a pickle that could run code, and a second interpreter, which the hook would not see;
- a process or a shared library that is started or loaded with a watched text or from the working directory.

Arithmetic without names is never a report. A text that the program changes beyond recognition (a decoded one) counts if the
program executes it, because its lines are not written in the program. A response that the judge's model copied into its
program is not noticed. This module imports only the standard library, because the isolated interpreter imports it too.
"""

from __future__ import annotations

import builtins
import os
import re
import sys
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any

MAX_REPORTS = 16
"""Maximum number of reports of one program."""

MAX_REPORT_BYTES = 256
"""Maximum size of a report."""

PROGRAM = "program.py"
"""File name of the program's code."""

_ARITHMETIC = re.compile(r"[\d\s.+\-*/%()<>=!&|^~,\[\]_eEjJxX]*")
"""Code that can only compute numbers."""

_NAME = re.compile(r"[A-Za-z_]\w*")
_IMPORT_LINE = re.compile(r"(?:import|from)\s[\w., *()]*")
_SAFE_BUILTINS = frozenset(
    {
        "abs",
        "bool",
        "complex",
        "divmod",
        "float",
        "int",
        "len",
        "max",
        "min",
        "pow",
        "range",
        "round",
        "sum",
        "True",
        "False",
    }
)
_BUILTINS = frozenset(dir(builtins)) - _SAFE_BUILTINS - {"None"}
_SYMPY_EFFECTS = frozenset(
    {"doctest", "init_session", "lambdify", "parse_expr", "plot", "pprint", "preview", "source", "sympify", "test"}
    | {"pager_print", "pretty_print", "print_tree", "print_python", "print_latex", "print_mathml", "print_gtk"}
    | {"print_ccode", "print_fcode", "print_glsl", "print_jscode", "print_maple_code", "print_rcode"}
)
"""Functions of SymPy that print, evaluate a text, or start something."""
_MIN_LINE_CHARS = 4
_GENERATORS = ("/collections/__init__.py", "/dataclasses.py")
"""Modules of the standard library that execute code which they made of checked identifiers."""
_ANNOTATIONS = ("/typing.py", "/annotationlib.py", "/inspect.py")
"""Modules of the standard library that evaluate annotations. Without a call, these only name types."""
_TEMPLATES = ("/timeit.py", "<frozen zipimport>")
"""Modules that execute what they are given, between lines of their own."""
_RUNNERS = (
    *(
        "/bdb.py",
        "/cProfile.py",
        "/code.py",
        "/codeop.py",
        "/doctest.py",
        "/pdb.py",
        "/profile.py",
        "/profiling/tracing",
    ),
    *("/runpy.py", "/trace.py", "<frozen runpy>", "<frozen codeop>", "<frozen code>"),
)
"""Modules that execute exactly what they are given."""
_PICKLED = frozenset(
    {"_codecs", "array", "collections", "copyreg", "datetime", "decimal", "enum", "fractions", "functools"}
)
_PICKLED_PACKAGES = frozenset(
    {
        "__main__",
        "concurrent",
        "mpmath",
        "multiprocessing",
        "numpy",
        "pandas",
        "pathlib",
        "scipy",
        "sympy",
        "uuid",
        "zoneinfo",
    }
)
"""Modules, and packages with all modules in them, whose objects may be in a pickle."""
_PROCESS_EVENTS = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile"})
_MAX_CHECKED_CHARS = 1 << 20


class CandidateCodeRefused(Exception):
    """The program tried to execute the text of a response in its own process."""


CandidateCodeRefused.__module__ = "builtins"


class Watch:
    """The state of the audit hook.

    Args:
        program: source of the program.
        texts: texts of candidates.
        report: sends a report to the host.
        refuses: whether execution of a watched text fails.
        scratch: working directory of the program.
        libraries: paths of packages that are not on `sys.path`.
    """

    def __init__(
        self,
        program: str,
        texts: Iterable[str],
        *,
        report: Callable[[str], None],
        refuses: bool,
        scratch: str,
        libraries: Iterable[str] = (),
    ) -> None:
        self._program = _squeezed(program)
        self._texts = [_squeezed(text) for text in texts if text.strip()]
        self._report, self._refuses, self._scratch = report, refuses, scratch + os.sep
        folders = [os.path.dirname(os.__file__), *filter(os.path.isabs, sys.path)]
        folders = [path for path in folders if path and path != scratch] + [*libraries]
        self._libraries = ("<frozen ", *(path if path.endswith(".py") else path + os.sep for path in folders))
        self._num_reports = 0
        self._suspect: set[str] = set()  # file names under which a watched text was compiled
        self._known: set[str] = {PROGRAM}  # file names under which other code was compiled
        self._last: tuple[int, int, bool] = (
            0,
            -1,
            False,
        )  # frame and instruction of the last compile, and whether it is suspect
        self._has_parsed = False  # whether a watched text was compiled or parsed

    def install(self) -> None:
        """Add the hook. It cannot be removed."""
        handlers: dict[str, Callable[[tuple[Any, ...]], None]] = {
            "compile": self._compile,
            "exec": self._execute,
            "function.__new__": self._execute,
            "object.__setattr__": self._set_attribute,
            "code.__new__": self._change_code,
            "marshal.load": self._unmarshal,
            "marshal.loads": self._unmarshal,
            "pickle.find_class": self._unpickle,
            "cpython.PyInterpreterState_New": lambda args: self._found("interpreter"),
            "ctypes.dlopen": self._load_library,
            "ctypes.dlsym": self._find_symbol,
            "ctypes.dlsym/handle": self._find_symbol,
        }
        handlers |= dict.fromkeys(_PROCESS_EVENTS, self._start_process)

        def hook(event: str, args: tuple[Any, ...]) -> None:
            handler = handlers.get(event)
            if handler is not None:
                handler(args)

        sys.addaudithook(hook)

    def _compile(self, args: tuple[Any, ...]) -> None:
        source, name = args[0], args[1]
        name = os.fsdecode(name) if isinstance(name, bytes) else str(name)
        if isinstance(source, bytes | bytearray | memoryview):
            source = bytes(source[: _MAX_CHECKED_CHARS + 1]).decode("utf-8", "replace")
        frame = sys._getframe(2)
        if isinstance(source, str):
            is_suspect = self._is_watched(source, name, frame)
            self._has_parsed |= is_suspect
        else:  # a syntax tree
            is_suspect = self._has_parsed
        (self._suspect if is_suspect else self._known).add(name)
        self._last = (id(frame), frame.f_lasti, is_suspect)

    def _is_watched(self, source: str, name: str, frame: Any) -> bool:
        """Whether a source counts as a watched text."""
        caller = frame.f_code.co_filename
        is_own = not caller.startswith(self._libraries)
        if caller.endswith(_GENERATORS) or (not is_own and name.startswith(self._libraries)):
            return False
        if len(source) > _MAX_CHECKED_CHARS:
            return True
        if _ARITHMETIC.fullmatch(source):
            return False
        if "/sympy/" in caller:
            return self._has_effects(source, frame)
        if is_own or caller.endswith(_RUNNERS):
            return self.overlaps(source) or not self._is_written(source)
        if caller.endswith(_ANNOTATIONS):
            return "(" in source and self.overlaps(source)
        if caller.endswith(_TEMPLATES) or caller.startswith("<frozen "):
            return self.overlaps(source)
        return self._mostly_overlaps(source)

    def _has_effects(self, source: str, frame: Any) -> bool:
        """Whether an expression that SymPy rewrote has names of functions that do more than compute, or double underscores,
        and they are from a watched text or from an expression in which it is."""
        names = {name for name in _NAME.findall(source) if name in _BUILTINS or name in _SYMPY_EFFECTS or "__" in name}
        return any(name in text for text in self._texts for name in names) or (bool(names) and _is_nested(frame))

    def overlaps(self, source: str) -> bool:
        """Whether a line of a source, or the whole of it, is in a watched text."""
        whole = _squeezed(source)
        if len(whole) >= _MIN_LINE_CHARS and any(whole in text for text in self._texts):
            return True
        return any(line in text for line in _telling_lines(source) for text in self._texts)

    def _mostly_overlaps(self, source: str) -> bool:
        """Whether more than half of the lines of a source are in watched texts."""
        lines = _telling_lines(source)
        return 2 * sum(any(line in text for text in self._texts) for line in lines) > len(lines)

    def _is_written(self, source: str) -> bool:
        """Whether every line of a source is written in the program."""
        return all(line in self._program for line in _telling_lines(source, min_chars=1))

    def _execute(self, args: tuple[Any, ...]) -> None:
        code = args[0]
        if not isinstance(code, CodeType):
            return
        frame = sys._getframe(2)
        name = code.co_filename
        if self._last[:2] == (id(frame), frame.f_lasti):  # exec of a text that was compiled just now
            is_suspect = self._last[2]
            self._last = (0, -1, False)
        else:
            is_suspect = name in self._suspect or not self._has_origin(name)
        if is_suspect or (name.startswith(self._scratch) and not name.startswith(self._libraries)):
            self._found("exec")

    def _has_origin(self, name: str) -> bool:
        return name in self._known or name.startswith(self._libraries)

    def _set_attribute(self, args: tuple[Any, ...]) -> None:
        if args[1] == "__code__" and isinstance(args[2], CodeType):
            self._execute((args[2],))

    def _change_code(self, args: tuple[Any, ...]) -> None:
        """Note a code object that the program makes of another one. It may have any file name."""
        if not sys._getframe(2).f_code.co_filename.startswith(self._libraries):
            self._suspect.add(args[1])

    def _unpickle(self, args: tuple[Any, ...]) -> None:
        module, name = args[0], args[1]
        if module == "builtins":
            is_harmless = name in _SAFE_BUILTINS or isinstance(getattr(builtins, name, None), type)
        else:
            is_harmless = "." not in name and (module in _PICKLED or module.split(".")[0] in _PICKLED_PACKAGES)
        if not is_harmless:
            self._found("pickle")

    def _unmarshal(self, args: tuple[Any, ...]) -> None:
        if sys._getframe(2).f_code.co_filename == PROGRAM:
            self._found("marshal")

    def _load_library(self, args: tuple[Any, ...]) -> None:
        if isinstance(args[0], str | bytes) and os.fsdecode(args[0]).startswith((self._scratch, ".")):
            self._found("ctypes")

    def _find_symbol(self, args: tuple[Any, ...]) -> None:
        if isinstance(args[-1], str) and args[-1].startswith(("PyRun_", "PyEval_", "Py_Compile")):
            self._found("ctypes")

    def _start_process(self, args: tuple[Any, ...]) -> None:
        words = " ".join(_flat(args))
        if self.overlaps(words) or "python" in words or self._scratch in words or f"{os.sep}sh" in words:
            self._found("subprocess")

    def _found(self, how: str) -> None:
        """Report, then refuse or allow."""
        if self._num_reports < MAX_REPORTS:
            self._num_reports += 1
            self._report(how)
        if self._refuses:
            raise CandidateCodeRefused(
                f"{how} of a response in this process is not allowed: the response could forge the output"
            )


def _squeezed(text: str) -> str:
    """Return a text with one space in place of each run of blanks, so that indentation does not matter."""
    return " ".join(text.split())


def _telling_lines(source: str, *, min_chars: int = _MIN_LINE_CHARS) -> list[str]:
    """Return the lines of a source that say where it is from, without imports, comments and very short ones."""
    lines = (_squeezed(line) for line in source.splitlines())
    return [
        line
        for line in lines
        if len(line) >= min_chars
        and (not line.startswith("#") or "coding" in line)  # a line with a coding says how to read the others
        and not _IMPORT_LINE.fullmatch(line)
    ]


def _is_nested(frame: Any) -> bool:
    """Whether a frame was called from an expression that is being evaluated."""
    while frame is not None:
        if frame.f_code.co_filename == "<string>":
            return True
        frame = frame.f_back
    return False


def _flat(value: Any, depth: int = 3) -> list[str]:
    if isinstance(value, str | bytes | os.PathLike):
        return [os.fsdecode(value)]
    if isinstance(value, list | tuple) and depth:
        return [each for part in value for each in _flat(part, depth - 1)]
    return []


def watch(
    program: str,
    texts: Iterable[str],
    *,
    descriptor: int,
    refuses: bool,
    scratch: str,
    libraries: Iterable[str] = (),
) -> None:
    """Watch this process from now on. Reports are packets on a socket, which forked processes share.

    Args:
        program: source of the program.
        texts: texts of candidates.
        descriptor: socket for the reports.
        refuses: whether execution of a watched text fails.
        scratch: working directory of the program.
        libraries: paths of packages that are not on `sys.path`.
    """
    write = os.write

    def report(how: str) -> None:
        write(descriptor, how.encode()[:MAX_REPORT_BYTES])

    Watch(program, texts, report=report, refuses=refuses, scratch=scratch, libraries=libraries).install()
