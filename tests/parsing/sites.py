"""Find all places in the packages that search text: patterns, scanners, and calls of libraries that may take long."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tests.sources import trees_of

PACKAGES = (
    "tirjudge",
    "tirjudge_pages",
    "tirjudge_sandbox",
    "tirjudge_evidence",
    "tirjudge_server",
    "tirjudge_harness",
)
"""Packages that read untrusted text."""

SEARCHES = frozenset({"find", "rfind", "index", "rindex", "partition", "rpartition"})
"""String methods that scan a text. In a loop, they can scan it repeatedly."""

LIBRARIES = frozenset(
    {"difflib", "langdetect", "math_verify", "nltk", "punkt", "pygments", "rapidfuzz", "regex", "sympy"}
)
"""Packages that can take quadratic time, or that use patterns internally."""

_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """One place that searches text."""

    name: str
    """`module:qualified name`. For a pattern at module level: the name that it is assigned to."""
    kind: str
    """`pattern`, `scanner` or `library`."""
    line: int
    """Line number in the file."""
    path: Path
    """Path of the file, relative to the repository."""


def trees() -> dict[Path, ast.Module]:
    """Return path, relative to the repository -> syntax tree of all files of the packages."""
    return {path: tree for package in PACKAGES for path, tree in trees_of(package).items()}


@cache
def sites() -> list[Site]:
    """Return all places, sorted by name."""
    found: list[Site] = []
    for path, tree in trees().items():
        _, *parts = path.with_suffix("").parts
        module = ".".join(parts).removesuffix(".__init__")
        found += [
            Site(name=f"{module}:{name}", kind=kind, line=line, path=path)
            for name, kind, line in _searches_in(tree, inside="")
        ]
    return _numbered(sorted(found))


def _numbered(found: list[Site]) -> list[Site]:
    """Rename the second pattern under the same name to `name#2`, so that it needs a separate entry."""
    counted: Counter[str] = Counter()
    numbered: list[Site] = []
    for site in found:
        counted[site.name] += site.kind == "pattern"
        is_repeated = site.kind == "pattern" and counted[site.name] > 1
        numbered.append(replace(site, name=f"{site.name}#{counted[site.name]}") if is_repeated else site)
    return numbered


def _searches_in(node: ast.AST, *, inside: str) -> Iterator[tuple[str, str, int]]:
    """Yield name, kind and line of each place below a node. Nested functions are listed separately."""
    for child in ast.iter_child_nodes(node):
        name = inside
        if isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
            name = f"{inside}.{child.name}" if inside else child.name
            if isinstance(child, _FUNCTIONS) and _is_scanner(child):
                yield name, "scanner", child.lineno
        elif not inside and isinstance(child, ast.Assign | ast.AnnAssign):
            name = _assigned(child)
        if _is_pattern(child):
            yield inside or "module", "pattern", getattr(child, "lineno", 0)
        elif _is_library(child):
            yield inside or "module", "library", getattr(child, "lineno", 0)
        yield from _searches_in(child, inside=name)


def _assigned(node: ast.Assign | ast.AnnAssign) -> str:
    """Return the first target of an assignment."""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return ast.unparse(target)


def _is_pattern(node: ast.AST) -> bool:
    """Whether a node is a call of a function of `re` that takes a pattern."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr not in ("escape", "purge")
    )


def _is_library(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return any(alias.name.partition(".")[0] in LIBRARIES for alias in names)
        case ast.ImportFrom(module=str(module)):
            return module.partition(".")[0] in LIBRARIES
        case ast.Call(func=ast.Attribute(value=ast.Name(id="ast"), attr="parse" | "literal_eval")):
            return True
        case _:
            return False


def _is_scanner(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a loop of a function searches a text or cuts one at a variable position (in a `while` loop: at any)."""
    loops = [loop for loop in _nodes_of(function) if isinstance(loop, _LOOPS)]
    return any(_searches(inner, is_while=isinstance(loop, ast.While)) for loop in loops for inner in _nodes_of(loop))


def _nodes_of(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and its descendants, without nested functions, which are listed separately."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _FUNCTIONS):
            yield from _nodes_of(child)


def _searches(node: ast.AST, *, is_while: bool) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in SEARCHES
        case ast.Subscript(slice=ast.Slice(lower=lower, upper=upper)):
            bounds = [bound for bound in (lower, upper) if bound is not None]
            return isinstance(node.ctx, ast.Load) and any(is_while or not _is_fixed(bound) for bound in bounds)
        case _:
            return False


def _is_fixed(bound: ast.expr) -> bool:
    if isinstance(bound, ast.UnaryOp):
        bound = bound.operand
    return isinstance(bound, ast.Constant) or (isinstance(bound, ast.Name) and bound.id.strip("_").isupper())
