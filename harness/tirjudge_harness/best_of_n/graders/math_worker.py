"""Worker process that parses and compares mathematical answers. It reads and writes one JSON object per line.

To `{"response": ...}` it answers `{"answer": ...}`: the final answer of the response, or null. To `{"gold": ...,
"answer": ...}` it answers `{"same": ...}`. A question may loop forever or use up the memory limit; the parent then
kills this process.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

from tirjudge_harness.best_of_n.graders.final_answer import last_boxed

MAX_ANSWER_CHARS = 2000
"""Maximum length of an answer. Longer answers are repetition loops of a model and count as no answer."""

_MEMORY_BYTES = 4 << 30


def main() -> None:
    """Answer questions from stdin, one JSON line each, on stdout until stdin is closed."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    same_answer("1", gold="1")  # loads math-verify now, outside the time limit of the first question
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), file=answers, flush=True)


def _answer(question: dict[str, str]) -> dict[str, Any]:
    if "response" in question:
        return {"answer": final_answer(question["response"])}
    return {"same": same_answer(question["answer"], gold=question["gold"])}


def final_answer(response: str) -> str | None:
    """Return the content of the last box, or the last expression that math-verify can parse. None: neither exists."""
    from math_verify import parse

    answer = last_boxed(response)
    if answer is None:
        parsed = parse(response, parsing_timeout=None)  # pyrefly: ignore[bad-argument-type]
        answer = str(parsed[-1]).strip() if parsed else None
    return answer if answer and len(answer) <= MAX_ANSWER_CHARS else None


def same_answer(answer: str, *, gold: str) -> bool:
    """Whether math-verify finds an answer equal to the gold answer."""
    from math_verify import parse, verify

    first, second = (
        parse(rf"\boxed{{{text}}}", parsing_timeout=None)  # pyrefly: ignore[bad-argument-type]
        for text in (gold, answer)
    )
    return verify(first, second, timeout_seconds=None)


if __name__ == "__main__":
    main()
