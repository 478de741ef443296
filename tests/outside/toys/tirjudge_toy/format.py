"""A toy format: the question and the answers in plain lines, calls as `CALL tool: source`, the verdict as `VERDICT: X`."""

import hashlib
import re
from collections.abc import Collection, Sequence

from tirjudge.control_tokens import ControlTokens
from tirjudge.formats.base import Forcing, FormatTraits, FoundVerdict, Stops
from tirjudge.formats.texts import cut, elide
from tirjudge.tools.base import Bindings, Tool
from tirjudge.types import Completion, JudgeRequest, Mode, ToolCall, ToolResult, label_of, prompt_text

TEMPLATE = "TOY {mode}\nQ: {question}\n{answers}\nTools: {tools}"
_CALL = re.compile(r"^CALL (\w+): ([^\n]*)\nRESULT:$", re.MULTILINE)
_VERDICT = re.compile(r"^VERDICT: (\w+);", re.MULTILINE)


class ToyFormat:
    name = "toy/1"
    traits = FormatTraits()
    sha256 = hashlib.sha256(TEMPLATE.encode()).hexdigest()

    def labels(self, mode: Mode, num_responses: int) -> tuple[str, ...]:
        if mode is Mode.POINTWISE:
            return tuple(str(score) for score in range(1, 11))
        return tuple(label_of(index) for index in range(num_responses))

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
        answers = [elide(request.responses[index], limit=response_chars) for index in order]
        return control_tokens.broken(
            TEMPLATE.format(
                mode=request.mode.value,
                question=elide(prompt_text(request.prompt), limit=prompt_chars),
                answers="\n".join(f"{label_of(place)}: {text}" for place, text in enumerate(answers)),
                tools=", ".join(f"{tool.name} ({tool.description})" for tool in tools) or "none",
            )
        )

    def bindings(self, request: JudgeRequest, *, order: Sequence[int]) -> Bindings:
        return {label_of(place).lower(): request.responses[index] for place, index in enumerate(order)}

    def stops(self, mode: Mode, *, tools: Sequence[Tool]) -> Stops:
        return Stops(verdict=(";",), call=("\nRESULT:",) if tools else ())

    def read_call(self, completion: Completion, *, tools: Sequence[Tool]) -> ToolCall | None:
        calls = _CALL.findall(completion.text) if completion.stop == "\nRESULT:" else []
        if not calls or calls[-1][0] not in {tool.name for tool in tools}:
            return None
        return ToolCall(tool=calls[-1][0], source=calls[-1][1])

    def find_verdict(self, texts: Sequence[str], *, mode: Mode, labels: Collection[str]) -> FoundVerdict | None:
        for turn in reversed(range(len(texts))):
            if found := list(_VERDICT.finditer(texts[turn])):
                label, start = found[-1][1], found[-1].start(1)
                at = FoundVerdict(label=label, turn=turn, opens=found[-1].start(), opened=start, start=start)
                return at if label in labels else None
        return None

    def shown_output(self, result: ToolResult, *, limit: int, control_tokens: ControlTokens) -> str:
        return control_tokens.broken(cut(result.error or result.stdout, limit=limit))

    def observation(self, output: str, *, call: ToolCall) -> str:
        return f" {output}\n"

    def forcing(self, mode: Mode, *, labels: Sequence[str]) -> Forcing | None:
        return None


FORMAT = ToyFormat()
