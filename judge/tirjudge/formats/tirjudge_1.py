"""The format `tirjudge/1`, on which the bundled judge is trained: six prompts, Python blocks, output fences, verdict
tags.

All prompt and observation texts are frozen byte for byte, because trained judges depend on them. A change requires a
new format version in a new module. Programs get the original texts of a request; the prompt shows neutralized texts
(`texts.py`). Calls and verdicts are parsed only from text that the model wrote, never from an observation.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from functools import cache
from importlib import resources

from tirjudge.control_tokens import FAMILIES, ControlTokens
from tirjudge.formats.base import Forcing, FoundVerdict, Stops
from tirjudge.formats.texts import cut, elide, fill, neutralise
from tirjudge.tools.base import Bindings, Tool
from tirjudge.types import (
    PYTHON,
    Completion,
    Criterion,
    JudgeRequest,
    Mode,
    ToolCall,
    ToolResult,
    label_of,
    prompt_text,
)

NAME = "tirjudge/1"

SCORES = tuple(str(score) for score in range(1, 11))
"""Labels of a pointwise verdict."""

OUTPUT_FENCE = "```output"
"""Opening of an output block. Generation stops when the model writes it, and the program runs."""

MAX_NAME_CHARS = 80
"""Maximum length of a criterion's name shown in full, in characters."""

_PYTHON = (PYTHON,)

MORE_TOOLS = """\
You may call tools: write a block that begins with ``` and the tool's name, close it, then open an ```output block, and its \
output is given to you. You may make {max_tool_calls} calls in all."""
"""Text before the question if tools other than Python are offered. The bundled judge was not trained on it."""

_GUIDANCE = re.compile(r"<(?=/?(?:reference|criteria|rubric)>)", re.IGNORECASE)
"""Tags of the optional sections. They are broken only in prompts with such a section, because judges were trained on
prompts without them."""


@cache
def template(mode: Mode, *, tools: bool) -> str:
    """Return one of the six prompt templates, read from its file."""
    name = f"{mode}_{'tools' if tools else 'plain'}.txt"
    return resources.files("tirjudge").joinpath("formats", "prompts", "tirjudge_1", name).read_text(encoding="utf-8")


@cache
def prompts_sha256() -> str:
    """Return the SHA-256 over the six prompt templates. `judge.json` has the hash that a checkpoint was trained on."""
    digest = hashlib.sha256()
    for mode in Mode:
        for tools in (True, False):
            digest.update(template(mode, tools=tools).encode())
    return digest.hexdigest()


def labels(mode: Mode, num_responses: int) -> tuple[str, ...]:
    """Return the labels that a verdict may have: scores, or letters of responses."""
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
    more_tools: Sequence[Tool] = (),
    control_tokens: ControlTokens = FAMILIES,
) -> str:
    """Render the user message of one rollout.

    Args:
        mode: judging task.
        prompt: full text of the question.
        responses: full texts of the candidates, in the order to show them; exactly one for pointwise.
        tools: whether to offer Python.
        max_tool_calls: maximum number of calls, stated in the prompt.
        prompt_chars: maximum length of the question shown in full, of the rubric, and of all criteria together.
        response_chars: maximum length of a response shown in full, and of the reference, in characters.
        reference: a known good answer. None: no reference section.
        criteria: criteria to judge by. Empty: no criteria section.
        rubric: judging instructions. None: no rubric section.
        more_tools: tools to offer besides Python.
        control_tokens: control tokens of the model, to break in untrusted text.
    """
    guided = reference is not None or bool(criteria) or rubric is not None

    def shown(text: str, limit: int) -> str:
        safe = neutralise(elide(text, limit=limit), control_tokens=control_tokens)
        return _GUIDANCE.sub("< ", safe) if guided else safe

    alone = mode is Mode.POINTWISE
    names = ["response"] if alone else [f"response_{label.lower()}" for label in labels(mode, len(responses))]
    sections = [
        f"<{name}>\n{shown(text, response_chars)}\n</{name}>" for name, text in zip(names, responses, strict=True)
    ]
    asked = [f"<prompt>\n{shown(prompt, prompt_chars)}\n</prompt>"]
    if reference is not None:
        asked.append(_reference_section(shown(reference, response_chars), tools=tools))
    if criteria:
        lines = _criteria_lines(criteria, chars=prompt_chars)
        asked.append(_criteria_section([shown(line, len(line)) for line in lines]))
    if rubric is not None:
        asked.append(f"Judge by this rubric.\n<rubric>\n{shown(rubric, prompt_chars)}\n</rubric>")
    if more_tools:
        asked.insert(0, _more_tools_section(more_tools, max_tool_calls=max_tool_calls))
    values = {
        "prompt": "\n\n".join(asked),
        "responses": "\n\n".join(sections),
        "max_tool_calls": str(max_tool_calls),
        "last_label": labels(mode, len(responses))[-1],
        "last_name": names[-1],
    }
    return fill(template(mode, tools=tools), values)


def _reference_section(reference: str, *, tools: bool) -> str:
    found = " Programs find it in `reference`." if tools else ""
    return f"An answer known to be good, to compare with.{found}\n<reference>\n{reference}\n</reference>"


def _criteria_section(lines: Sequence[str]) -> str:
    listed = "\n".join(lines)
    return f"Judge by these criteria, the ones of more weight first of all.\n<criteria>\n{listed}\n</criteria>"


def _more_tools_section(tools: Sequence[Tool], *, max_tool_calls: int) -> str:
    lines = [f"- ```{tool.name}: {tool.description}" for tool in tools]
    return "\n".join([fill(MORE_TOOLS, {"max_tool_calls": str(max_tool_calls)}), *lines])


def _criteria_lines(criteria: Sequence[Criterion], *, chars: int) -> list[str]:
    """Return one line per criterion, such as `2. Tone (weight 0.5): It is friendly.`; each text gets an equal share of
    `chars` characters."""
    lines: list[str] = []
    for number, criterion in enumerate(criteria, start=1):
        name = "" if criterion.name is None else elide(" ".join(criterion.name.split()), limit=MAX_NAME_CHARS) + " "
        text = elide(criterion.text, limit=chars // len(criteria))
        lines.append(f"{number}. {name}(weight {criterion.weight:g}): {text}")
    return lines


def bindings(
    mode: Mode, *, prompt: str, responses: Sequence[str], reference: str | None = None
) -> dict[str, str | dict[str, str]]:
    """Return the variables for programs: the full texts, in the order that the model was shown.

    Always `prompt`; `reference` if there is one. Pointwise: `response`. Other modes: `response_a`, `response_b`, ...
    and `responses` (label -> text).
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


def verdict_tag(mode: Mode) -> str:
    """Return the name of the tag around the verdict: `score` for pointwise, `preference` for other modes."""
    return "score" if mode is Mode.POINTWISE else "preference"


@cache
def _block(names: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of a closed block of one of the tools. The block ends at the first line that begins with a
    fence. A fence inside a line, such as `print("```")`, does not end it."""
    name = "|".join(map(re.escape, names))
    return re.compile(
        rf"^[ \t]*```({name})[ \t]*\r?\n((?:(?![ \t]*```).*\n)*)[ \t]*```[ \t]*\r?$", re.MULTILINE | re.IGNORECASE
    )


def parse_code(text: str) -> str | None:
    """Return the last closed ```python block of one turn; None if the turn has no such block."""
    blocks = _block(_PYTHON).findall(text)
    return blocks[-1][1] if blocks else None


def asks_for_run(text: str, *, names: tuple[str, ...] = _PYTHON) -> bool:
    """Whether a turn without an output fence ends right after a closed block. Such a block is also a tool call."""
    blocks = list(_block(names).finditer(text))
    return bool(blocks) and not text[blocks[-1].end() :].strip()


def find_verdict(texts: Sequence[str], *, mode: Mode, labels: Collection[str]) -> FoundVerdict | None:
    """Return the last well-formed verdict; None without a verdict, or if its label was not offered.

    A tag inside a program also counts, because generation stops there.

    Args:
        texts: texts that the model wrote, one per turn. A tag cannot span turns.
        mode: judging task, which determines the tag.
        labels: the offered labels.
    """
    tag = verdict_tag(mode)
    pattern = re.compile(rf"<{tag}>\s*([A-Za-z0-9]+)\s*</{tag}>")
    for turn in reversed(range(len(texts))):
        matches = list(pattern.finditer(texts[turn]))
        if matches:
            label, opens, start = matches[-1][1], matches[-1].start(), matches[-1].start(1)
            opened = opens + len(f"<{tag}>")
            return (
                FoundVerdict(label=label, turn=turn, opens=opens, opened=opened, start=start)
                if label in labels
                else None
            )
    return None


def shown_output(result: ToolResult, *, limit: int, control_tokens: ControlTokens = FAMILIES) -> str:
    """Return the output of a program, or only the last line of its error if it failed. The text is neutralized, because
    a program may print the judged texts."""
    text = result.stdout.rstrip("\n") if result.error is None else result.error
    return neutralise(cut(text, limit=limit), control_tokens=control_tokens)


def observation_text(output: str) -> str:
    """Return the text after the model's "```output": the output and the closing fence."""
    return f"\n{output}\n```\n"


class Tirjudge1:
    """The format `tirjudge/1` as a `Format`."""

    name = NAME

    @property
    def sha256(self) -> str:
        """SHA-256 over the six prompt templates."""
        return prompts_sha256()

    labels = staticmethod(labels)

    def render(
        self,
        request: JudgeRequest,
        *,
        order: Sequence[int],
        tools: Sequence[Tool],
        prompt_chars: int,
        response_chars: int,
        control_tokens: ControlTokens,
    ) -> str:
        return render_prompt(
            request.mode,
            prompt=prompt_text(request.prompt),
            responses=[request.responses[index] for index in order],
            reference=request.reference,
            criteria=request.criteria or (),
            rubric=request.rubric,
            tools=any(tool.name == PYTHON for tool in tools),
            more_tools=[tool for tool in tools if tool.name != PYTHON],
            max_tool_calls=request.max_tool_calls,
            prompt_chars=prompt_chars,
            response_chars=response_chars,
            control_tokens=control_tokens,
        )

    def bindings(self, request: JudgeRequest, *, order: Sequence[int]) -> Bindings:
        shown = [request.responses[index] for index in order]
        return bindings(request.mode, prompt=prompt_text(request.prompt), responses=shown, reference=request.reference)

    def stops(self, mode: Mode, *, tools: Sequence[Tool]) -> Stops:
        """Return the closing verdict tag and, with tools, the opening of an output block."""
        return Stops(verdict=(f"</{verdict_tag(mode)}>",), call=(OUTPUT_FENCE,) if tools else ())

    def read_call(self, completion: Completion, *, tools: Sequence[Tool]) -> ToolCall | None:
        """Parse the last closed block before the output fence. A model that was not trained on the fence ends its turn
        after the block; `opening` then contains the fence."""
        names = tuple(tool.name for tool in tools)
        opened = bool(names) and completion.stop == OUTPUT_FENCE
        ended = bool(names) and completion.stop is None and completion.finish_reason == "stop"
        if not opened and not (ended and asks_for_run(completion.text, names=names)):
            return None
        blocks = _block(names).findall(completion.text)
        name, source = blocks[-1] if blocks else (names[0], None)
        return ToolCall(
            tool=name.lower() if name.lower() in names else name,
            source=source,
            problem=None if blocks else f"NoProgram: no closed ```{names[0]} block before the output block",
            opening="" if opened else f"\n{OUTPUT_FENCE}",
        )

    find_verdict = staticmethod(find_verdict)

    shown_output = staticmethod(shown_output)

    def observation(self, output: str, *, call: ToolCall) -> str:
        return call.opening + observation_text(output)

    def forcing(self, mode: Mode, *, labels: Sequence[str]) -> Forcing:
        tag = verdict_tag(mode)
        question = (
            f"Give your verdict now and write nothing else: <{tag}>X</{tag}>, where X is one of {', '.join(labels)}."
        )
        return Forcing(opening=f"\n<{tag}>", closing=f"</{tag}>", question=question)


FORMAT = Tirjudge1()
