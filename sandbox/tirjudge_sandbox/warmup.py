"""Prepare an interpreter for forking programs: imports, first calls of packages, and loading of shared libraries.

Work that is done here once does not have to be repeated in each program. No thread may stay running, because threads do
not survive a fork. This module imports only the standard library and the packages of the preset.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import glob
import importlib
import os
import sys
from collections.abc import Callable

from tirjudge_sandbox.jail import JailError
from tirjudge_sandbox.packages import PackageFinder, Packages
from tirjudge_sandbox.preload import PRELOAD, Preload
from tirjudge_sandbox.presets import Preset
from tirjudge_sandbox.protocol import ONE_THREAD, SCRATCH

# fmt: off
_STANDARD = (
    "abc", "base64", "bisect", "calendar", "cmath", "collections", "copy", "csv", "ctypes", "dataclasses", "datetime",
    "decimal", "difflib", "enum", "fractions", "functools", "hashlib", "heapq", "html", "inspect", "io", "itertools",
    "json", "math", "numbers", "operator", "pathlib", "pprint", "random", "re", "statistics", "string", "struct",
    "textwrap", "threading", "time", "traceback", "typing", "unicodedata", "urllib.parse", "uuid", "warnings", "zlib",
)
# fmt: on
"""Standard modules that a judge's programs often import. All presets import them."""

_SUBMODULES = {
    "numpy": ("numpy.fft", "numpy.linalg", "numpy.ma", "numpy.polynomial", "numpy.random"),
    "scipy": ("scipy.integrate", "scipy.interpolate", "scipy.linalg", "scipy.optimize", "scipy.special", "scipy.stats"),
}
"""Submodules that these packages load lazily."""

_SYSTEM_LIBRARIES = (
    "libm.so.6",
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "libz.so.1",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
)
"""Libraries that extension modules in wheels expect (PEP 600). The files do not exist inside the sandbox."""

_ENVIRONMENT = {"HOME": SCRATCH, "LANG": "C.UTF-8", "TZ": "UTC", **ONE_THREAD}
"""Environment variables of programs."""

_SKIPPED_EXTENSIONS = ("_tkinter", "_test", "_xx", "_curses", "readline", "_dbm", "_gdbm", "nis")


def warm_up(preset: Preset, *, packages: Packages, preload: Preload | None) -> None:
    """Prepare this interpreter for forking programs.

    Args:
        preset: packages to import.
        packages: packages that programs may import.
        preload: module to load. None: none.

    Raises:
        JailError: the module could not be loaded, or a package left threads running, which do not survive a fork.
    """
    for name in _STANDARD:
        importlib.import_module(name)
    _load_shared_libraries()
    PackageFinder(packages).install()
    for name in preset.packages:
        if name in packages.modules:
            _warm_up_package(name)
    if preload is not None:
        try:
            preload.load()
        except Exception as error:
            raise JailError(PRELOAD, f"{type(error).__name__}: {error}") from error
    _add_site_builtins()
    for stream in (sys.stdout, sys.stderr):
        # Line buffering keeps the output of a killed program. Lone surrogates are escaped instead of raising an error.
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    os.environ.clear()
    os.environ.update(_ENVIRONMENT)
    num_threads = len(os.listdir("/proc/self/task"))
    if num_threads > 1:
        raise JailError("warm-up", f"imported packages left {num_threads - 1} threads running")
    gc.collect()
    gc.freeze()


def _load_shared_libraries() -> None:
    """Load the libraries that the extensions of the standard library and of wheels link to. The files do not exist
    inside the sandbox."""
    extensions = [path for entry in sys.path if entry.endswith("lib-dynload") for path in glob.glob(f"{entry}/*.so")]
    wanted = [path for path in sorted(extensions) if not os.path.basename(path).startswith(_SKIPPED_EXTENSIONS)]
    for path in (*wanted, *_SYSTEM_LIBRARIES):
        with contextlib.suppress(OSError):  # the extension's library is not installed here
            ctypes.CDLL(path)


def _add_site_builtins() -> None:
    """Add `exit`, `quit` and `help`, which `python -S` omits."""
    site = importlib.import_module("site")
    site.setquit()
    site.sethelper()


def _warm_up_package(name: str) -> None:
    """Import a package and make its first calls. Errors are ignored: they will appear in a program that imports it."""
    with contextlib.suppress(Exception):
        for module in (name, *_SUBMODULES.get(name, ())):
            importlib.import_module(module)
        if name in _FIRST_CALLS:
            _FIRST_CALLS[name]()


def _call_numpy() -> None:
    numpy = importlib.import_module("numpy")
    matrix = numpy.array([[2.0, 1.0], [1.0, 3.0]])
    str(numpy.linalg.solve(matrix, matrix @ matrix))
    str(numpy.random.default_rng(0).normal(size=3))


def _call_sympy() -> None:
    """Call sympy functions once. The first call of each function imports and caches much more than later ones."""
    sympy = importlib.import_module("sympy")
    x, y = sympy.symbols("x y")
    for result in (
        sympy.factor(x**3 - 1),
        sympy.expand((x + y) ** 3),
        sympy.solve(x**2 - 2, x),
        sympy.solve([x + y - 3, x - y - 1], [x, y]),
        sympy.integrate(x * sympy.sin(x), x),
        sympy.diff(sympy.exp(x**2), x),
        sympy.simplify(sympy.sin(x) ** 2 + sympy.cos(x) ** 2),
        sympy.limit(sympy.sin(x) / x, x, 0),
        sympy.Rational(1, 3).evalf(),
        sympy.Matrix([[1, 2], [3, 4]]).inv(),
        sympy.nsimplify(0.5),
        sympy.sympify("2*x + 1"),
        sympy.latex(x**2 / 2),
    ):
        str(result)


def _call_pandas() -> None:
    pandas = importlib.import_module("pandas")
    frame = pandas.DataFrame({"a": [1, 2, 2], "b": [1.0, 2.0, 3.0]})
    str(frame.groupby("a")["b"].mean())
    str(frame.describe())


_FIRST_CALLS: dict[str, Callable[[], None]] = {"numpy": _call_numpy, "sympy": _call_sympy, "pandas": _call_pandas}
