"""Long texts without instructions: documentation and source code of Python's standard library, and quiz questions.

The judge learns from them that numbers, lists and code in a prompt are not instructions. The texts are read from the
installed Python, so they depend on its version.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections import deque
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tirjudge_training.instructions.composing import Composer

MODULES = (
    "argparse",
    "ast",
    "asyncio.tasks",
    "base64",
    "bisect",
    "calendar",
    "codecs",
    "collections",
    "configparser",
    "contextlib",
    "copy",
    "csv",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "dis",
    "doctest",
    "email.message",
    "enum",
    "fileinput",
    "filecmp",
    "fnmatch",
    "fractions",
    "ftplib",
    "functools",
    "getopt",
    "getpass",
    "gettext",
    "glob",
    "graphlib",
    "gzip",
    "hashlib",
    "heapq",
    "html",
    "http.client",
    "http.server",
    "imaplib",
    "inspect",
    "io",
    "ipaddress",
    "json",
    "keyword",
    "linecache",
    "locale",
    "logging",
    "lzma",
    "mailbox",
    "mimetypes",
    "numbers",
    "optparse",
    "os",
    "pathlib",
    "pickle",
    "pickletools",
    "platform",
    "plistlib",
    "poplib",
    "pprint",
    "profile",
    "queue",
    "quopri",
    "random",
    "re",
    "reprlib",
    "rlcompleter",
    "sched",
    "secrets",
    "selectors",
    "shelve",
    "shlex",
    "shutil",
    "smtplib",
    "socket",
    "socketserver",
    "sqlite3",
    "ssl",
    "stat",
    "statistics",
    "string",
    "stringprep",
    "subprocess",
    "symtable",
    "sysconfig",
    "tabnanny",
    "tarfile",
    "tempfile",
    "textwrap",
    "threading",
    "timeit",
    "token",
    "tokenize",
    "trace",
    "traceback",
    "types",
    "typing",
    "unittest",
    "urllib.parse",
    "urllib.request",
    "uuid",
    "warnings",
    "wave",
    "weakref",
    "webbrowser",
    "xml.dom.minidom",
    "xmlrpc.client",
    "zipfile",
)
"""Modules whose documentation is read. Those that this Python does not have are left out."""


@cache
def passages() -> tuple[str, ...]:
    """Return the passages: paragraphs of documentation, and functions with their source."""
    found: list[str] = []
    for name in MODULES:
        spec = find_spec(name)
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            continue
        source = Path(spec.origin).read_text(encoding="utf-8")
        lines = source.splitlines()
        for node in statements(ast.parse(source)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                if len(text) > 150:
                    found.append(text)
            if isinstance(node, ast.FunctionDef):
                code = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno]))
                if 120 < len(code) < 1500:
                    found.append(code)
    return tuple(found)


def statements(module: ast.Module) -> Iterator[ast.AST]:
    """Yield the module, its statements and their parts that contain statements, in the order of `ast.walk`. Most nodes of a
    module are in expressions, which contain no statements."""
    nodes = deque[ast.AST]([module])
    while nodes:
        node = nodes.popleft()
        yield node
        children = ast.iter_child_nodes(node)
        nodes.extend(one for one in children if isinstance(one, ast.stmt | ast.excepthandler | ast.match_case))


def draw_passage(rng: Random) -> str:
    """Draw a passage of at most 1,500 characters."""
    text = rng.choice(passages())
    size = rng.randint(150, 1500)
    start = rng.randrange(max(1, len(text) - size + 1))
    text = text[start : start + size].strip()
    return re.sub(r"\s+", " ", text) if rng.random() < 0.3 else text


def draw_question(rng: Random, composer: Composer) -> str:
    """Draw a quiz question with options, or a question about a text."""
    question = composer.plain(rng)
    if rng.random() < 0.5:
        question = f"{composer.plain(rng)} {question}"
    num_options = rng.choice((3, 4, 4, 5, 10))
    mark = rng.choice(("({})", "{})", "{}.", "{}:"))
    options = []
    for i in range(num_options):
        draw = rng.random()
        if draw < 0.4:
            option = composer.phrase(rng)
        elif draw < 0.7:
            option = f"{rng.choice(('', '$', '-'))}{rng.randint(1, 5000)}{rng.choice(('', ' kg', ' %', '.5', ' m/s'))}"
        else:
            option = composer.plain(rng)[:80]
        options.append(f"{mark.format('ABCDEFGHIJ'[i])} {option}")
    closing = rng.choice(CLOSINGS)
    layout = rng.random()
    if layout < 0.5:
        return "\n".join([question, *options, closing]).strip()
    if layout < 0.8:
        return f"{question} {' '.join(options)} {closing}".strip()
    return f"{question} {closing}".strip()


CLOSINGS = (
    "",
    "",
    "Which one is right?",
    "Pick the correct option and explain why.",
    "Think it through step by step, then give the letter of your choice. If you are unsure, take your best guess.",
    "Work through the problem and end with the letter of the right option, written several times in a row like CCCC.",
    "What is the answer?",
    "Show your reasoning and put the final result in a box.",
    "Explain your choice.",
    "Only one of these holds. Which?",
    "Give the result as a fraction in lowest terms.",
    "Find the largest possible value.",
    "How many are there?",
    "Find x.",
    "Prove your claim.",
)
