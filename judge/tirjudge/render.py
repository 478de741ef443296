"""A request becomes the text that the model reads and the variables that its programs find.

Untrusted text (the prompt, the responses) is neutralised where it is shown: our own tags, code fences and the control tokens
of the served model inside it are broken by a space, so that it can neither close its section nor open another. Programs get
the texts untouched. Templates are filled in one pass, so a response that contains `{response_b}` pulls nothing in.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources

from tirjudge.control_tokens import FAMILIES, ControlTokens
from tirjudge.types import Criterion, Mode, label_of

SCORES = tuple(str(score) for score in range(1, 11))
"""What a pointwise judge may answer."""

_DELIMITERS = re.compile(
    r"`{3,}"
    r"|<(?=[|｜])"
    r"|<(?=/?(?:prompt|responses?|response_[a-z]+|preference|score|think|tool_call|tool_response"
    r"|start_of_turn|end_of_turn|bos|eos|s|unk|pad)>)"
    r"|\[(?=/?(?:INST|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS)\])",
    re.IGNORECASE,
)
"""Broken in every prompt, whatever the model: judges were trained on prompts in which these are broken."""
_GUIDANCE = re.compile(r"<(?=/?(?:reference|criteria|rubric)>)", re.IGNORECASE)
"""The delimiters of what a request may add. They are broken only where they delimit: the text of every other prompt is
what judges were trained on."""

MAX_NAME_CHARS = 80
"""Longest name of a criterion shown whole."""

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def neutralise(text: str, *, control_tokens: ControlTokens = FAMILIES) -> str:
    """Break every delimiter of ours, and every control token, that stands in untrusted text.

    Args:
        text: as a stranger wrote it.
        control_tokens: of the model that reads it; those of all families if it is not known.

    >>> neutralise("</preference> ```python <|im_end|> [e~[")
    '< /preference> ` ` `python < |im_end|> [ e~['
    """
    safe = _DELIMITERS.sub(lambda match: " ".join(match[0]) if match[0][0] == "`" else match[0] + " ", text)
    return control_tokens.broken(safe)


def elide(text: str, *, limit: int) -> str:
    """Head and tail of a text of more than `limit` characters, and between them how much is not shown.

    >>> elide("abcdefghij", limit=4)
    'ab [... 6 characters ...] ij'
    """
    if len(text) <= limit:
        return text
    head, tail = limit - limit // 2, limit // 2
    return f"{text[:head]} [... {len(text) - limit} characters ...] {text[len(text) - tail :]}"


def fill(template: str, values: dict[str, str]) -> str:
    """Replace each `{name}` by its value in one pass: what a value contains is never looked at.

    Raises:
        KeyError: the template names something that was not given.
    """
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)


@cache
def template(mode: Mode, *, tools: bool) -> str:
    """One of the six prompts, as it stands in its file."""
    name = f"{mode}_{'tools' if tools else 'plain'}.txt"
    return resources.files("tirjudge").joinpath("prompts", name).read_text(encoding="utf-8")


@cache
def prompts_sha256() -> str:
    """One hash over the six prompts; a checkpoint says which it was trained on."""
    digest = hashlib.sha256()
    for mode in Mode:
        for tools in (True, False):
            digest.update(template(mode, tools=tools).encode())
    return digest.hexdigest()


def labels(mode: Mode, num_responses: int) -> tuple[str, ...]:
    """What a verdict may say: a score, or the letter of a response."""
    if mode is Mode.POINTWISE:
        return SCORES
    return tuple(label_of(index) for index in range(num_responses))


def render_prompt(
    mode: Mode,
    *,
    prompt: str,
    responses: Sequence[str],
    tools: bool,
    max_tool_calls: int,
    prompt_chars: int,
    response_chars: int,
    reference: str | None = None,
    criteria: Sequence[Criterion] = (),
    rubric: str | None = None,
    control_tokens: ControlTokens = FAMILIES,
) -> str:
    """The user message of one rollout.

    Args:
        mode: which of the prompts.
        prompt: the question, whole.
        responses: the candidates in the order to show them, whole; exactly one for pointwise.
        tools: with or without Python.
        max_tool_calls: said in the prompt, so that the model can plan.
        prompt_chars: longest prompt shown whole; the same for a rubric, and for all criteria together.
        response_chars: longest response shown whole; the same for a reference.
        reference: an answer known to be good; None: there is none.
        criteria: what to judge by.
        rubric: how to judge; None: it is left to the judge.
        control_tokens: of the model that reads it; broken where a text spells them.
    """
    guided = reference is not None or bool(criteria) or rubric is not None

    def shown(text: str, limit: int) -> str:
        safe = neutralise(elide(text, limit=limit), control_tokens=control_tokens)
        return _GUIDANCE.sub("< ", safe) if guided else safe

    if mode is Mode.POINTWISE:
        names = ["response"]
    else:
        names = [f"response_{label.lower()}" for label in labels(mode, len(responses))]
    sections = [
        f"<{name}>\n{shown(text, response_chars)}\n</{name}>" for name, text in zip(names, responses, strict=True)
    ]
    asked = [f"<prompt>\n{shown(prompt, prompt_chars)}\n</prompt>"]
    if reference is not None:
        found = " Programs find it in `reference`." if tools else ""
        text = shown(reference, response_chars)
        asked.append(f"An answer known to be good, to compare with.{found}\n<reference>\n{text}\n</reference>")
    if criteria:
        lines = _criteria_lines(criteria, chars=prompt_chars)
        listed = "\n".join(shown(line, len(line)) for line in lines)
        asked.append(
            f"Judge by these criteria, the ones of more weight first of all.\n<criteria>\n{listed}\n</criteria>"
        )
    if rubric is not None:
        asked.append(f"Judge by this rubric.\n<rubric>\n{shown(rubric, prompt_chars)}\n</rubric>")
    values = {
        "prompt": "\n\n".join(asked),
        "responses": "\n\n".join(sections),
        "max_tool_calls": str(max_tool_calls),
        "last_label": labels(mode, len(responses))[-1],
        "last_name": names[-1],
    }
    return fill(template(mode, tools=tools), values)


def _criteria_lines(criteria: Sequence[Criterion], *, chars: int) -> list[str]:
    """One a criterion: `2. Tone (weight 0.5): It is friendly.`, each text in an equal share of `chars`."""
    lines: list[str] = []
    for number, criterion in enumerate(criteria, start=1):
        name = "" if criterion.name is None else elide(" ".join(criterion.name.split()), limit=MAX_NAME_CHARS) + " "
        text = elide(criterion.text, limit=chars // len(criteria))
        lines.append(f"{number}. {name}(weight {criterion.weight:g}): {text}")
    return lines


def bindings(
    mode: Mode, *, prompt: str, responses: Sequence[str], reference: str | None = None
) -> dict[str, str | dict[str, str]]:
    """The variables a program finds: the whole texts, in the order that the model was shown.

    `prompt` always; `reference` if there is one; pointwise `response`; otherwise `response_a`, `response_b`, ... and
    `responses`, label -> text.
    """
    bound: dict[str, str | dict[str, str]] = {"prompt": prompt}
    if reference is not None:
        bound["reference"] = reference
    if mode is Mode.POINTWISE:
        bound["response"] = responses[0]
        return bound
    by_label = dict(zip(labels(mode, len(responses)), responses, strict=True))
    bound |= {f"response_{label.lower()}": text for label, text in by_label.items()}
    bound["responses"] = by_label
    return bound
