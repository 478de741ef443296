"""Docs, comments, messages and names are in plain technical English."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUFFIXES = {".md", ".py", ".sh", ".toml", ".yaml", ""}

FROZEN = (
    "benchmarks/sandbox_attacks.toml",
    "judge/tirjudge/checkpoints/",
    "judge/tirjudge/formats/prompts/",
    "harness/tirjudge_harness/best_of_n/graders/ifeval/",
    "harness/tirjudge_harness/robustness/attacks.toml",
    "training/tirjudge_training/synthetic/",
    "tests/test_english.py",
    "tests/judge/golden/",
)
"""Texts that a model was trained on, or that a benchmark's rules define."""

BANNED = {
    "would do": "name the value that works",
    "whoever": "name the reader, caller or process",
    "whatever": "any",
    "nobody": "no caller, no process, ...",
    "somebody": "a caller, a user, ...",
    "anybody": "any caller, any user, ...",
    "anew": "again",
    "so many": "maximum number of, this many",
    "so much": "this much, more",
    "none of this": "name the set",
    "is no (?:longer )?(?:folder|file|number|object|list|checkpoint|directory|key|URL|such)": "is not a ...",
    "to be had": "available",
    "cannot be had": "is not available",
    "gone on with": "continued",
    "go(?:es)? on with": "continues",
    "as nobody else": "unique",
    "is told": "is passed, is reported",
    "are told": "are passed, are reported",
    "what chance": "confidence interval",
    "what it takes": "requirements",
    "in vain": "without success",
    "at a go": "in one call",
    "heed(?:s|ed)?": "ignore, read",
    "unheeded": "ignored",
    "therein": "in it",
    "wherein": "in which",
    "thereby": "by that",
    "lest": "so that ... not",
    "come(?:s)? about": "happens",
    "for ever": "forever",
    "of its own accord": "unprompted",
    "in any case": "case-insensitive, or delete it",
    "counts? half": "counts as 0.5",
    "without attack": "without an attack, without the attack",
    "also if": "even if, or two sentences",
    "highest scored": "highest-scoring",
    "best rated": "highest-rated",
    r"replac(?:e|es|ing) [\w ]{1,40} by (?:the|those|a|an|any|another|others?)": "replace X with Y",
    r"another \w+ than": "a different, differs from",
    r"other \w+ than those": "different, differs from",
    "makes? (?:a|the|both) runs?": "run, execute",
    "in order to": "to",
}
"""Phrase -> what to write in its place. Each was found in text that readers did not understand at first reading."""


UNIX_USER = re.compile(r"owner=nobody")


def _files() -> Iterator[Path]:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    for name in filter(None, tracked):
        path = ROOT / name
        if path.suffix in SUFFIXES and not name.startswith(FROZEN) and path.is_file():
            yield path


def test_no_banned_phrase_is_used() -> None:
    pattern = re.compile(rf"\b(?:{'|'.join(BANNED)})\b", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]!r}"
        for path in _files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for match in pattern.finditer(UNIX_USER.sub("", line).replace("_", " "))
    ]
    assert found == []
