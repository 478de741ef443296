"""Row readers: a pure function per data set that converts a row to a problem, or to the reason for rejecting it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tirjudge.types import ChatMessage
from tirjudge_training.data.answers import last_boxed
from tirjudge_training.data.problems import AnswerCheck, CandidateAnswer, TrainingProblem, id_of
from tirjudge_training.data.quality import Reason, Rejected, prompt_key

Row = Mapping[str, Any]

CONFIG = "_config"
"""Name of a column that is added on loading: the configuration on the hub of each row, or the name of its file."""

MIN_PREFERENCE = 2
"""Minimum absolute preference in HelpSteer3 (range -3 to 3). Weaker preferences are unreliable."""

MAX_REFERENCE_CHARS = 200
"""Maximum length of a reference answer. Longer texts are explanations."""

_TEXT_TYPES = ("Boolean", "Multiple Choice")
_MATH_TYPES = ("Float", "Integer", "Fraction", "Percentage", "Expression")
_ROLES = {"human": "user", "gpt": "assistant", "user": "user", "assistant": "assistant", "system": "system"}


class BrokenRow(ValueError):
    """A column has an invalid value. The message has the column, the value and the expected type."""


def helpsteer3(row: Row) -> TrainingProblem | Rejected:
    """Read a preference of HelpSteer3; weak preferences are rejected."""
    preference = row["overall_preference"]
    if not isinstance(preference, int) or abs(preference) > 3:
        raise BrokenRow(f"overall_preference: expected -3 to 3, got {preference!r}")
    if abs(preference) < MIN_PREFERENCE:
        return Rejected(reason=Reason.UNCLEAR_PREFERENCE, detail=f"overall_preference {preference}")
    first, second = _text(row, "response1"), _text(row, "response2")
    chosen, rejected = (first, second) if preference < 0 else (second, first)
    return _preference(_conversation(row, "context"), chosen=chosen, rejected=rejected)


def ultrainteract(row: Row) -> TrainingProblem | Rejected:
    """Read a preference of UltraInteract; only coding tasks are kept."""
    if row["task"] != "Coding":
        return Rejected(reason=Reason.OTHER_TASK, detail=f"task {row['task']!r}")
    return _preference(_conversation(row, "trajectory"), chosen=_text(row, "chosen"), rejected=_text(row, "rejected"))


def s1(row: Row) -> TrainingProblem | Rejected:
    """Read a question of s1K; only mathematics is kept."""
    kind = row.get("cot_type", "math")
    if kind != "math":
        return Rejected(reason=Reason.OTHER_TASK, detail=f"cot_type {kind!r}")
    solution = _text(row, "solution")
    return _with_answer(_text(row, "question"), answer=last_boxed(solution) or solution)


def coderm(row: Row) -> TrainingProblem | Rejected:
    """Read a problem of CodeRM-UnitTest with its reference program and programs of models.

    The tests that the reference program passes in the sandbox decide which other programs are right.
    """
    tests = [_source(test, "unit_tests") for test in _listed(row, "unit_tests")]
    if not tests:
        return Rejected(reason=Reason.UNVERIFIABLE_ANSWER, detail="the row has no unit tests")
    reference = CandidateAnswer(text=_fenced(_text(row, "code_ground_truth")), right=True)
    written = [_source(one, "code_generate") for one in _listed(row, "code_generate")] if _has(row) else []
    others = [CandidateAnswer(text=_fenced(code), generator="Llama-3.1-8B-Instruct") for code in written]
    return _problem(
        _text(row, "question"), check=AnswerCheck.TESTS, reference=json.dumps(tests), candidates=(reference, *others)
    )


def tulu_pairs(row: Row) -> TrainingProblem | Rejected:
    """Read a preference of Tulu 3."""
    problem = _preference(
        _text(row, "prompt"), chosen=_last_reply(row, "chosen"), rejected=_last_reply(row, "rejected")
    )
    # "chonsen_model" is the spelling of the data set.
    generators = [row.get("chonsen_model") or "", row.get("rejected_model") or ""]
    named = zip(problem.candidates, generators, strict=True)
    return replace(problem, candidates=tuple(replace(one, generator=generator) for one, generator in named))


def tulu_prompts(row: Row) -> TrainingProblem | Rejected:
    """Read a prompt of RLVR-IFeval with the name and the arguments of its verifier function."""
    verifier = json.loads(_text(row, "ground_truth"))
    if not isinstance(verifier, dict) or not verifier.get("func_name"):
        return Rejected(reason=Reason.UNVERIFIABLE_ANSWER, detail="ground_truth names no verifier function")
    reference = json.dumps({name: value for name, value in verifier.items() if value is not None})
    return _problem(_conversation(row, "messages"), check=AnswerCheck.INSTRUCTIONS, reference=reference)


def math(row: Row) -> TrainingProblem | Rejected:
    """Read a problem of MATH; its boxed answer is the reference."""
    answer = last_boxed(_text(row, "solution"))
    if answer is None:
        return Rejected(reason=Reason.UNVERIFIABLE_ANSWER, detail="the solution has no boxed answer")
    return _with_answer(_text(row, "problem"), answer=answer)


def dapo(row: Row) -> TrainingProblem | Rejected:
    """Read a problem of DAPO-Math."""
    return _with_answer(_text(row, "prompt"), answer=_text(row, "solution" if "solution" in row else "answer"))


def webinstruct(row: Row) -> TrainingProblem | Rejected:
    """Read a question of WebInstruct-verified; mathematics and open answers are rejected."""
    category, kind = _text(row, "category"), _text(row, "answer_type")
    if category.casefold().startswith("math"):
        return Rejected(reason=Reason.OTHER_TASK, detail=f"category {category!r}")
    if kind in _TEXT_TYPES:
        return _with_answer(_text(row, "question"), answer=_text(row, "answer"), check=AnswerCheck.TEXT)
    if kind in _MATH_TYPES:
        return _with_answer(_text(row, "question"), answer=_text(row, "answer"))
    return Rejected(reason=Reason.UNVERIFIABLE_ANSWER, detail=f"answer_type {kind!r}")


def loong(row: Row) -> TrainingProblem | Rejected:
    """Read a question of Loong; the domain programming is rejected."""
    if row.get(CONFIG) == "programming":
        return Rejected(reason=Reason.OTHER_TASK, detail="domain 'programming'")
    answer = _text(row, "final_answer")
    is_word = re.fullmatch(r"(?i)true|false|yes|no|[a-e]", answer.strip()) is not None
    return _with_answer(_text(row, "question"), answer=answer, check=AnswerCheck.TEXT if is_word else AnswerCheck.MATH)


def saferlhf(row: Row) -> TrainingProblem | Rejected:
    """Read a pair of PKU-SafeRLHF; the safer response is the better one."""
    safer = row["safer_response_id"]
    if safer not in (0, 1):
        raise BrokenRow(f"safer_response_id: expected 0 or 1, got {safer!r}")
    responses = (_text(row, "response_0"), _text(row, "response_1"))
    return _preference(_text(row, "prompt"), chosen=responses[safer], rejected=responses[1 - safer])


# Parts of rows ----------------------------------------------------------------------------------------------------------


def _problem(
    prompt: str | tuple[ChatMessage, ...],
    *,
    check: AnswerCheck,
    reference: str = "",
    candidates: tuple[CandidateAnswer, ...] = (),
) -> TrainingProblem:
    """Return a problem without the fields that its source fills in."""
    return TrainingProblem(
        id=id_of(prompt_key(prompt)),
        prompt=prompt,
        check=check,
        reference=reference,
        candidates=candidates,
        task="",
        source="",
        licence="",
        verifiable=True,
    )


def _preference(prompt: str | tuple[ChatMessage, ...], *, chosen: str, rejected: str) -> TrainingProblem:
    candidates = (CandidateAnswer(text=chosen, right=True), CandidateAnswer(text=rejected, right=False))
    return _problem(prompt, check=AnswerCheck.PREFERENCE, candidates=candidates)


def _with_answer(prompt: str, *, answer: str, check: AnswerCheck = AnswerCheck.MATH) -> TrainingProblem | Rejected:
    answer = answer.strip().strip("$").strip()
    if not answer or len(answer) > MAX_REFERENCE_CHARS:
        return Rejected(reason=Reason.UNVERIFIABLE_ANSWER, detail=f"an answer of {len(answer)} characters")
    return _problem(prompt, check=check, reference=answer)


def _text(row: Row, column: str) -> str:
    value = row[column]
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise BrokenRow(f"{column}: expected text, got {value!r:.60}")
    # Lone surrogates cannot be encoded by tokenizers and files.
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _conversation(row: Row, column: str) -> str | tuple[ChatMessage, ...]:
    """Return a text or messages, from (`role`, `content`) or (`from`, `value`). A single user message becomes a
    text."""
    if isinstance(row[column], str):
        return _text(row, column)
    messages = tuple(_message(message, column) for message in _sequence(row[column], column))
    if not messages:
        raise BrokenRow(f"{column}: expected at least one message, got none")
    return messages[0].content if len(messages) == 1 and messages[0].role == "user" else messages


def _message(message: Any, column: str) -> ChatMessage:
    if not isinstance(message, Mapping):
        raise BrokenRow(f"{column}: expected a message, got {message!r:.60}")
    role = str(message.get("role") or message.get("from"))
    content = _text({column: message.get("content") or message.get("value")}, column)
    if role not in _ROLES:
        raise BrokenRow(f"{column}: role: expected one of {', '.join(_ROLES)}, got {role!r:.60}")
    return ChatMessage.model_validate({"role": _ROLES[role], "content": content})


def _last_reply(row: Row, column: str) -> str:
    """Return a response that is a text, or the last message of a conversation."""
    conversation = _conversation(row, column)
    return conversation if isinstance(conversation, str) else conversation[-1].content


def _has(row: Row) -> bool:
    return row.get("code_generate") is not None


def _listed(row: Row, column: str) -> Sequence[Any]:
    """Return a list, or parse one from text in JSON or Python syntax."""
    value = row[column]
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            try:
                value = ast.literal_eval(value)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                raise BrokenRow(f"{column}: expected a list in JSON or Python syntax, got {value!r:.60}") from None
    return _sequence(value, column)


def _sequence(value: Any, column: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise BrokenRow(f"{column}: expected a list, got {value!r:.60}")
    return value


def _source(value: Any, column: str) -> str:
    """Return source code that is a text, or the value of `code` in an object."""
    code = value.get("code") if isinstance(value, Mapping) else value
    return _text({column: code}, column)


def _fenced(code: str) -> str:
    """Return a program as an answer in a code fence; text with a fence is unchanged."""
    return code if "```" in code else f"```python\n{code.strip()}\n```"
