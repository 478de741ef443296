"""Formats that are declared in a file (`declaration`): the prompts of other judges, shipped or a user's own.

Texts of a request are shown as they are, with the control tokens of the served model broken and nothing else. The model
gets no tools, and no verdict is forced: a rollout without a verdict abstains. Only what the model wrote is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from tirjudge.control_tokens import ControlTokens
from tirjudge.errors import PromptTooLong, RequestNotShown
from tirjudge.formats import SUFFIX, shown_name
from tirjudge.formats.base import Forcing, FormatTraits, FoundVerdict, Stops
from tirjudge.formats.declaration import SECTIONS, SLOT, FormatFile, PromptPart, parse_format, read_format_file
from tirjudge.formats.texts import NOT_SHOWN, elide
from tirjudge.prompt_messages import PromptMessage
from tirjudge.tools.base import Bindings, Tool
from tirjudge.types import TIE, ChatMessage, Completion, JudgeRequest, Mode, ToolCall, ToolResult, label_of, prompt_text

NUM_HEX = 12
"""Number of hex digits of the hash in the name of a format from a user's file."""

NUM_SAMPLED = 3
"""Number of responses in a sample of a prompt that shows any number."""

_IGNORED = {"title", "notes", "unverified", "source", "orders"}
"""Fields of a file that do not change what is judged. They are not part of the hash."""


class DeclaredFormat:
    """A format from a file.

    Args:
        name: name of the format.
        file: content of the file.
    """

    def __init__(self, name: str, *, file: FormatFile) -> None:
        self.name = name
        self.shown_name = shown_name(name)
        self.file = file
        self.traits = FormatTraits(
            refusal=self._refusal,
            modes=tuple(self.file.modes),
            takes_tools=False,
            temperature=file.sampling.temperature,
            top_p=file.sampling.top_p,
        )

    @property
    def sha256(self) -> str:
        """SHA-256 over the prompts, the forms of the verdicts and the sampling."""
        return _sha256(self.file)

    def labels(self, mode: Mode, num_responses: int) -> tuple[str, ...]:
        """Return the letters of the responses, or the scores from 1 to 10. A verdict may also be a tie or a score between
        them."""
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
    ) -> list[PromptMessage]:
        chosen = self.prompt_for(request)
        if chosen.num_responses not in (None, len(order)):
            raise PromptTooLong(
                f"the format {self.shown_name} shows exactly {chosen.num_responses} responses in a prompt, but they do not "
                "fit; raise context_tokens or group_size of the profile (judge.json)"
            )
        broken = control_tokens.served.broken

        def shown(text: str, limit: int) -> str:
            return broken(elide(text, limit=limit))

        def part(text: str, limit: int) -> str:
            return shown(text, limit) if limit else NOT_SHOWN

        values = {"prompt": shown(prompt_text(request.prompt), prompt_chars)}
        for name, limit in zip(SECTIONS, (response_chars, prompt_chars), strict=True):
            own = getattr(request, name)
            values[name] = chosen.defaults.get(name, "") if own is None else part(own, limit)
        texts = [request.responses[index] for index in order]
        responses = [part(text.strip() if chosen.strip else text, response_chars) for text in texts]
        values |= {f"response_{label_of(place).lower()}": text for place, text in enumerate(responses)}
        values["response"] = responses[0]
        if chosen.responses is not None:
            listing = chosen.responses
            values["responses"] = listing.between.join(
                filled(listing.each, {"response": text, "number": str(place + 1), "letter": label_of(place)})
                for place, text in enumerate(responses)
            )
        given = _given(request)
        messages: list[PromptMessage] = []
        for message in chosen.message:
            if message.conversation:
                chat = (
                    [ChatMessage(role="user", content=request.prompt)]
                    if isinstance(request.prompt, str)
                    else request.prompt
                )
                messages += [PromptMessage(role=each.role, content=shown(each.content, prompt_chars)) for each in chat]
            elif message.only_with is None or message.only_with in given:
                messages.append(PromptMessage(role=message.role, content=filled(message.content or "", values)))
        return messages

    def prompt_for(self, request: JudgeRequest) -> PromptPart:
        """Return the prompt for a request.

        Raises:
            RequestNotShown: no prompt shows the request.
        """
        found = self._fitting(request)
        if found is None or request.criteria is not None:
            raise RequestNotShown(self._refusal(request))
        return found

    def bindings(self, request: JudgeRequest, *, order: Sequence[int]) -> Bindings:
        """Return no variables, because there are no programs."""
        return {}

    def stops(self, mode: Mode, *, tools: Sequence[Tool]) -> Stops:
        """Return no stop strings: the model ends its turn."""
        return Stops()

    def read_call(self, completion: Completion, *, tools: Sequence[Tool]) -> ToolCall | None:
        """Return None: there are no tools."""
        return None

    def find_verdict(self, texts: Sequence[str], *, mode: Mode, labels: Collection[str]) -> FoundVerdict | None:
        """Return the verdict of the last turn that has one; None without a verdict, or if its label was not offered."""
        part = self.file.modes.get(mode)
        pointwise = mode is Mode.POINTWISE
        for turn in reversed(range(len(texts))):
            found = None if part is None else part.read(texts[turn], num_responses=1 if pointwise else len(labels))
            if found is not None:
                if found.label is None or (not pointwise and found.label not in (*labels, TIE)):
                    return None
                return FoundVerdict(
                    label=found.label,
                    turn=turn,
                    opens=found.opens,
                    opened=found.opened,
                    start=found.start,
                    written=found.written,
                    spellings=found.spellings,
                    points=found.points if self.file.join == "points" and not pointwise else None,
                )
        return None

    def shown_output(self, result: ToolResult, *, limit: int, control_tokens: ControlTokens) -> str:
        """Return nothing, because there are no tools."""
        return ""

    def observation(self, output: str, *, call: ToolCall) -> str:
        """Return nothing, because there are no tools."""
        return ""

    def forcing(self, mode: Mode, *, labels: Sequence[str]) -> Forcing | None:
        """Return None: other judges were not trained to continue an opened verdict."""
        return None

    def _fitting(self, request: JudgeRequest) -> PromptPart | None:
        """Return the prompt that shows a request; None: there is none."""
        given = _given(request)
        part = self.file.modes.get(request.mode)
        for prompt in () if part is None else part.prompt:
            is_size = prompt.num_responses in (None, num_shown(request))
            if is_size and given <= prompt.sections and prompt.needed <= given:
                return prompt
        return None

    def _refusal(self, request: JudgeRequest) -> str | None:
        """Return why no prompt shows a request, and what would help; None: one does."""
        part = self.file.modes.get(request.mode)
        if part is None:
            modes = ", ".join(self.file.modes)
            return (
                f"mode: {request.mode} given, but the format {self.shown_name} has no prompt for it; its modes: {modes}; "
                "give one of them (`mode`, --mode)"
            )
        if request.criteria is not None:
            takes_rubric = any("rubric" in prompt.sections for prompt in part.prompt)
            fix = "use rubric" if takes_rubric else "remove them"
            return f"criteria: given, but the format {self.shown_name} has no place for them; {fix}"
        if self._fitting(request) is not None:
            return None
        prompt = f"the {request.mode} prompt of the format {self.shown_name}"
        if not part.sizes & {None, num_shown(request)}:
            sizes = " or ".join(sorted(map(str, part.sizes)))
            return f"responses: {num_shown(request)} given, but {prompt} shows {sizes}"
        given = _given(request)
        for name in sorted(given - set[str]().union(*(each.sections for each in part.prompt))):
            return f"{name}: given, but {prompt} has no place for it; remove it"
        needed = set.intersection(*(each.needed for each in part.prompt)) - given
        return (
            f"{', '.join(sorted(needed or given))}: {prompt} needs {'it; add it' if needed else 'another combination'}"
        )


def sample_request(prompt: PromptPart, *, mode: Mode) -> JudgeRequest:
    """Return a short request that a prompt shows, with every section that it has a place for."""
    size = 1 if mode is Mode.POINTWISE else prompt.num_responses or NUM_SAMPLED
    return JudgeRequest(
        mode=mode,
        prompt="Which word is longer?",
        responses=[f"The word {number}." for number in range(1, size + 1)],
        tools="off",
        reference="The reference of a test." if "reference" in prompt.sections else None,
        rubric="The rubric of a test." if "rubric" in prompt.sections else None,
    )


def num_shown(request: JudgeRequest) -> int:
    """Return the number of responses in one prompt of a request."""
    return 1 if request.mode is Mode.POINTWISE else len(request.responses)


def _given(request: JudgeRequest) -> set[str]:
    """Return the sections that a request has."""
    return {name for name in SECTIONS if getattr(request, name) is not None}


def filled(template: str, values: Mapping[str, str]) -> str:
    """Return a template with its placeholders replaced, in one pass.

    >>> filled('{{x}} {{{x|json}}} {x}', {"x": 'a "b" {{x}}'})
    'a "b" {{x}} {"a \\\\"b\\\\" {{x}}"} {x}'
    """
    return SLOT.sub(
        lambda match: json.dumps(values[match[1]], ensure_ascii=False) if match[2] else values[match[1]], template
    )


def shipped_names() -> list[str]:
    """Return the names of the declared formats of this package, sorted."""
    return sorted(each.name.removesuffix(SUFFIX) for each in _folder().iterdir() if each.name.endswith(SUFFIX))


@cache
def shipped_format(name: str) -> DeclaredFormat | None:
    """Return a declared format of this package; None: there is none with this name."""
    if name not in shipped_names():
        return None
    content = _folder().joinpath(f"{name}{SUFFIX}").read_bytes()
    return DeclaredFormat(name, file=parse_format(content, origin=name))


def format_of_file(given: str) -> DeclaredFormat:
    """Return the format of a user's file.

    Args:
        given: `PATH.toml`, or the name of a format that this function returned: `PATH.toml#HASH`, with the first
            digits of the hash, so that a run does not continue with a changed file.

    Raises:
        ValueError: the file cannot be read, is not a format, or has another hash.
    """
    path, _, expected = given.partition(f"{SUFFIX}#")
    path = f"{path.removesuffix(SUFFIX)}{SUFFIX}"
    file = parse_format(read_format_file(Path(path)), origin=path)
    digits = _sha256(file)[:NUM_HEX]
    if expected not in ("", digits):
        raise ValueError(f"--format {path}: the file has changed since: its hash is {digits}, not {expected}")
    return DeclaredFormat(f"{path}#{digits}", file=file)


def _folder():
    return resources.files("tirjudge").joinpath("formats", "others")


def _sha256(file: FormatFile) -> str:
    values = file.model_dump(mode="json", exclude=_IGNORED)
    return hashlib.sha256(json.dumps(values, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
