"""Parse a chat that was rendered with a chat template, including special tokens, into a conversation and its last
answer.

Trainers decode the ids of prompt and completion and send one string. If they also send the rendered prompt, the answer
is the text after the prompt, regardless of its content.

Without the prompt, the text must have exactly one reading (one way to split it into turns). A policy can write any
marker of a template, so a second assistant turn may be faked by the first answer, together with a question before it. A
text is therefore accepted only if

- it begins with a turn of a known template, preceded only by padding and beginning-of-text tokens,
- it has no text between the end of a turn and the next turn, and no text after the last turn,
- only the last turn is an assistant turn. (In Harmony, the messages of the assistant and its tools are one turn.)

A conversation with several answers therefore needs its prompt. For a text with no reading or with several readings the
result is None, and the caller reports a missing score. Every parser is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from tirjudge.control_tokens import FAMILIES
from tirjudge.types import ChatMessage

ResponseView = Literal["full", "final"]
"""`full`: the answer with its reasoning. `final`: the answer without its reasoning."""

Role = Literal["system", "user", "assistant", "tool"]

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "model": "assistant",
    "gpt": "assistant",
    "ai": "assistant",
    "tool": "tool",
    "ipython": "tool",
    "function": "tool",
    "observation": "tool",
}

_DEEPSEEK_BEGIN = "<｜begin▁of▁sentence｜>"
_EDGES = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|finetune_right_pad_id|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|eom|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endofturn|>",
    "<end_of_turn>",
    "<turn|>",
    _DEEPSEEK_BEGIN,
    "<｜end▁of▁sentence｜>",
    "<｜▁pad▁｜>",
    "[|endofturn|]",
    "<seed:eos>",
    "<seed:pad>",
    "<end_of_sentence>",
    "]~!b[",
    "[e~[",
    "]!p~[",
    "<bos>",
    "<eos>",
    "<pad>",
    "<unk>",
    "<s>",
    "</s>",
    "[BOS]",
    "[EOS]",
    "[PAD]",
    "[gMASK]",
    "<sop>",
)
_EDGE = "(?:" + "|".join(map(re.escape, _EDGES)) + ")"
_EDGES_HERE = re.compile(rf"(?:{_EDGE}|\s)*+")
_EDGES_BACKWARDS = re.compile(r"(?:\s*+(?:" + "|".join(re.escape(edge[::-1]) for edge in _EDGES) + "))*+")
_PADDING = re.compile(r"<\|\w{1,64}\|>|<unused\d{1,9}>|<SPECIAL_\d{1,9}>")
"""A token of any name that may pad a text before its first turn or after its last turn."""
_PADDING_HERE = re.compile(rf"(?:{_EDGE}|{_PADDING.pattern}|\s)*+")

_THINKING = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel>", "<channel|>"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedExchange:
    """A prompt and the response to it."""

    prompt: str | tuple[ChatMessage, ...]
    """The conversation; a text if the template of the prompt is not known."""
    response: str
    """The response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    role: Role
    content: str
    is_open: bool = False
    """Whether the text ends before the end of the turn."""


def detemplate(text: str, *, prompt: str | None = None, view: ResponseView = "full") -> RenderedExchange | None:
    """Parse a rendered chat. None: the text has no reading, or more than one.

    Args:
        text: prompt and response, decoded with their special tokens.
        prompt: the rendered prompt. `text` must begin with it, except for padding and beginning-of-text tokens. None:
            not known.
        view: whether to keep the reasoning in the response.
    """
    if prompt:
        rest = _after(prompt, text=text)
        return None if rest is None else _answered(prompt, rest=rest, view=view)
    found = _template_at_start(text)
    if found is None:
        return None
    template, begin = found
    if template.read is _harmony:
        return _harmony_exchange(text[begin:], view=view)
    *before, last = template.read(text[begin:]) or [_NO_TURN]
    if last.role != "assistant" or any(turn.role == "assistant" for turn in before):
        return None
    asked = _messages(before)
    if asked is None:
        return None
    return RenderedExchange(prompt=asked, response=view_of(without_end(last.content), view=view))


def _answered(prompt: str, *, rest: str, view: ResponseView) -> RenderedExchange:
    """Return the exchange for a known prompt and the text after it."""
    response = _harmony_answer(_harmony_messages(rest, in_header=True), view=view) if _is_harmony(prompt) else None
    return RenderedExchange(
        prompt=conversation_of(prompt) or _without_edges(prompt),
        response=view_of(without_end(rest), view=view) if response is None else response,
    )


def conversation_of(prompt: str) -> tuple[ChatMessage, ...] | None:
    """Return the turns of a rendered prompt, without an open assistant turn at its end; None if its template is
    unknown."""
    found = _template_at_start(prompt)
    turns = found[0].read(prompt[found[1] :]) if found else []
    if turns and turns[-1].role == "assistant" and turns[-1].is_open:
        turns = turns[:-1]
    return _messages(turns)


def _messages(turns: Sequence[_Turn]) -> tuple[ChatMessage, ...] | None:
    """Convert turns to messages; None if all of them are empty."""
    if not any(turn.content.strip() for turn in turns):
        return None
    return tuple(ChatMessage(role=turn.role, content=turn.content) for turn in turns)


def without_end(text: str) -> str:
    """Remove the special tokens at the end of a response, and the whitespace before each of them."""
    match = _EDGES_BACKWARDS.match(text[::-1])
    return text[: len(text) - match.end()] if match else text


def view_of(response: str, *, view: ResponseView) -> str:
    """Return a response with or without its reasoning. If the reasoning never ends, the answer is empty.

    The template may have opened the reasoning, so a closing tag without an opening tag also ends reasoning.
    """
    if view == "full":
        return response
    for opening, closing in _THINKING:
        if closing in response:
            return response.rpartition(closing)[2].lstrip("\n")
        if response.lstrip().startswith(opening):
            return ""
    return response


def _after(prompt: str, *, text: str) -> str | None:
    """Return the text after the prompt. Padding and beginning-of-text tokens of the two may differ. None: no match."""
    if text.startswith(prompt):
        return text[len(prompt) :]
    bare_text, bare_prompt = text[_edges_end(text) :], prompt[_edges_end(prompt) :]
    return bare_text[len(bare_prompt) :] if bare_prompt and bare_text.startswith(bare_prompt) else None


def _edges_end(text: str, place: int = 0) -> int:
    """Return the offset after the padding and beginning-of-text tokens, and their whitespace, that start at `place`."""
    match = _EDGES_HERE.match(text, place)
    return match.end() if match else place


def _is_padding(text: str) -> bool:
    return _PADDING_HERE.fullmatch(text) is not None


def _without_edges(text: str) -> str:
    return without_end(text[_edges_end(text) :])


# Templates. Each is recognized by the start of its first turn, and parses the whole text.

_NO_TURN = _Turn(role="system", content="")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Template:
    begins: re.Pattern[str]
    """Pattern of the start of its first turn."""
    read: Callable[[str], list[_Turn]]
    """Parses a text that begins with a turn into its turns; [] if the text is malformed."""


def _template_at_start(text: str) -> tuple[_Template, int] | None:
    """Return the template of a text and the offset of its first turn; None if the template is not known."""
    place = _edges_end(text)
    while True:
        for template in _TEMPLATES:
            if template.begins.match(text, place):
                return template, place
        padding = _PADDING.match(text, place)
        if padding is None:
            break
        place = _edges_end(text, padding.end())
    if _VICUNA_BEGINS.match(text, place):
        return _Template(begins=_VICUNA_BEGINS, read=_vicuna), place
    # The system turn of this template has no header, so the token before it is required.
    if text.startswith(_DEEPSEEK_BEGIN, place - len(_DEEPSEEK_BEGIN)) and place >= len(_DEEPSEEK_BEGIN):
        return _Template(begins=_DEEPSEEK_HEADER, read=_deepseek), place
    return None


def _after_each(header: re.Pattern[str], *, text: str) -> list[tuple[re.Match[str], str]]:
    """Return each header with the text up to the next header."""
    headers = list(header.finditer(text))
    stops = [*(match.start() for match in headers), len(text)][1:]
    return [(match, text[match.end() : stop]) for match, stop in zip(headers, stops, strict=False)]


def _by_header(header: re.Pattern[str], end: re.Pattern[str]) -> Callable[[str], list[_Turn]]:
    """Return a parser for templates of the form `header(role) content end`."""

    def read(text: str) -> list[_Turn]:
        turns: list[_Turn] = []
        for match, content in _after_each(header, text=text):
            role = _ROLES.get(match["role"].strip().lower())
            ended = end.search(content)
            if role is None or (ended and not _is_padding(content[ended.end() :])):
                return []
            turns.append(_Turn(role=role, content=content[: ended.start()] if ended else content, is_open=not ended))
        return turns

    return read


def _with_open_users(read: Callable[[str], list[_Turn]]) -> Callable[[str], list[_Turn]]:
    """Return a parser for templates in which a user turn ends at a line end, before the header of the assistant."""

    def read_closed(text: str) -> list[_Turn]:
        return [
            _Turn(role=turn.role, content=turn.content.removesuffix("\n"))
            if turn.is_open and turn.role != "assistant"
            else turn
            for turn in read(text)
        ]

    return read_closed


_DEEPSEEK_HEADER = re.compile(r"<｜(?P<role>User|Assistant)｜>")
_deepseek_turns = _by_header(_DEEPSEEK_HEADER, re.compile("<｜end▁of▁sentence｜>"))


def _deepseek(text: str) -> list[_Turn]:
    header = _DEEPSEEK_HEADER.search(text)
    # A user turn has no end marker.
    turns = [
        _Turn(role=turn.role, content=turn.content, is_open=turn.is_open and turn.role == "assistant")
        for turn in _deepseek_turns(text)
    ]
    system = _without_edges(text[: header.start()]) if header else ""
    return [_Turn(role="system", content=system), *turns] if system and turns else turns


@dataclass(slots=True, kw_only=True)
class _Message:
    """One message of Harmony during parsing."""

    role: list[str] = field(default_factory=list)
    channel: list[str] = field(default_factory=list)
    content: str | None = None
    """Content so far. None: not started."""
    is_open: bool = True

    @property
    def name(self) -> Role | None:
        """Role of the author. Tool messages have author names with a dot."""
        name = "".join(self.role).split(" to=")[0].strip().lower()
        if "." in name:
            return "tool"
        return _ROLES.get(name)

    @property
    def is_final(self) -> bool:
        return "".join(self.channel).strip() in ("", "final")

    @property
    def is_analysis(self) -> bool:
        return "".join(self.channel).strip() == "analysis"


_HARMONY_TOKENS = re.compile(r"(<\|(?:start|channel|constrain|message|end|return|call)\|>)")


def _is_harmony(text: str) -> bool:
    return "<|start|>" in text and "<|message|>" in text


def _harmony_messages(text: str, *, in_header: bool = False) -> list[_Message]:
    """Parse the messages of a Harmony chat in one pass; [] if there is text outside messages, or a message has two
    contents.

    Args:
        text: a complete chat or a part of one.
        in_header: whether the text begins inside the header of an assistant message.
    """
    parts = _HARMONY_TOKENS.split(text)
    messages = [_Message(role=["assistant"])] if in_header else []
    into = "role" if in_header else None
    if in_header and parts[0].strip() and not parts[0].startswith(" to="):
        return []
    for part in parts:
        match part:
            case "<|start|>":
                messages.append(_Message())
                into = "role"
            case "<|channel|>" | "<|constrain|>" | "<|message|>":
                into = part[2:-2]
                if into == "message" and messages:
                    if messages[-1].content is not None:
                        return []
                    messages[-1].content = ""
            case "<|end|>" | "<|return|>" | "<|call|>":
                into = None
                if messages:
                    messages[-1].is_open = part == "<|call|>"
            case _ if messages and into == "role":
                messages[-1].role.append(part)
            case _ if messages and into == "channel":
                messages[-1].channel.append(part)
            case _ if messages and into == "message":
                messages[-1].content = part
            case _ if into is None and not _is_padding(part):
                return []
    return messages


def _harmony(text: str) -> list[_Turn]:
    """Parse the turns of a Harmony chat. Consecutive assistant messages are one turn, whose content is the final
    channel."""
    turns: list[_Turn] = []
    for is_answer, group in groupby(_harmony_messages(text), key=lambda message: message.name == "assistant"):
        messages = list(group)
        if is_answer:
            final = "".join(message.content or "" for message in messages if message.is_final)
            turns.append(_Turn(role="assistant", content=final, is_open=messages[-1].is_open))
            continue
        for message in messages:
            if message.name is None:
                return []
            turns.append(_Turn(role=message.name, content=message.content or "", is_open=message.is_open))
    return turns


def _harmony_exchange(text: str, *, view: ResponseView) -> RenderedExchange | None:
    """Return the exchange of a complete chat. After the first assistant message, only assistant and tool messages
    follow."""
    messages = _harmony_messages(text)
    names = [message.name for message in messages]
    first = names.index("assistant") if "assistant" in names else 0
    if names[-1:] != ["assistant"]:
        return None
    before = [_Turn(role=m.name, content=m.content or "") for m in messages[:first] if m.name is not None]
    asked, response = _messages(before), _harmony_answer(messages[first:], view=view)
    return (
        None
        if asked is None or response is None or None in names
        else RenderedExchange(prompt=asked, response=response)
    )


def _harmony_answer(messages: Sequence[_Message], *, view: ResponseView) -> str | None:
    """Return the last answer in messages of a model and its tools; None if a message has another role, or there is no
    content.

    In the full view, the analysis precedes the answer inside `<think>` tags.
    """
    names = [message.name for message in messages]
    if not {*names} <= {"assistant", "tool"}:
        return None
    asked = max((place for place, name in enumerate(names) if name == "tool"), default=-1)
    written = [message for message in messages[asked + 1 :] if message.content is not None]
    if not written:
        return None
    final = "".join(message.content or "" for message in written if message.is_final)
    analysis = "\n".join(message.content or "" for message in written if message.is_analysis)
    return f"<think>{analysis}</think>{final}" if view == "full" and analysis else final


_SECTION = re.compile(r"\[(INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|MODEL_SETTINGS)\]")
_SECTION_EDGE = re.compile(r"\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|MODEL_SETTINGS)\]|</s>")
_LLAMA2_SYSTEM = re.compile(r"\s*<<SYS>>\n?")


def _inst(text: str) -> list[_Turn]:
    """Parse the templates of Llama 2 and Mistral (all versions). Their tags are equal, but the spaces around them
    differ."""
    turns: list[_Turn] = []
    place = 0
    while place < len(text):
        opening = _SECTION.match(text, place)
        if opening is None:
            return turns if _is_padding(text[place:]) else []
        closing = f"[/{opening[1]}]"
        end = text.find(closing, opening.end())
        content = text[opening.end() :] if end < 0 else text[opening.end() : end]
        if _SECTION.search(content):
            return []
        turns += _section(opening[1], content)
        if end < 0:
            return turns
        place = end + len(closing)
        if opening[1] in ("INST", "TOOL_RESULTS"):
            stop = _SECTION_EDGE.search(text, place)
            ended = stop is not None and stop[0] == "</s>"
            said = text[place : stop.start() if stop else len(text)].removeprefix(" ")
            turns.append(
                _Turn(role="assistant", content=said.removesuffix(" ") if ended else said, is_open=stop is None)
            )
            place = len(text) if stop is None else stop.end() if ended else stop.start()
        place = _edges_end(text, place)
    return turns


def _section(name: str, content: str) -> list[_Turn]:
    """Return the turns between an opening and a closing tag."""
    if name == "INST":
        return _llama2_user(content)
    return [_Turn(role="tool" if name == "TOOL_RESULTS" else "system", content=content)]


def _llama2_user(text: str) -> list[_Turn]:
    """Parse the text between the tags of a user turn. In Llama 2, it includes the system turn."""
    turns: list[_Turn] = []
    with_system = _LLAMA2_SYSTEM.match(text)
    if with_system:
        system, _, text = text[with_system.end() :].partition("<</SYS>>")
        turns.append(_Turn(role="system", content=system.removesuffix("\n")))
        text = text.lstrip("\n")
    return [*turns, _Turn(role="user", content=text.removeprefix(" ").removesuffix(" "))]


_VICUNA_HEADER = re.compile(r"(?:(?<=^)|(?<=\s)|(?<=</s>))(?P<role>USER|ASSISTANT): ?")
_VICUNA_BEGINS = re.compile(r"(?:[^\n]*?\s)??USER: ")
"""Plain words are weak markers, so at most one line may precede the first one."""


def _vicuna(text: str) -> list[_Turn]:
    """Parse the template of Vicuna. Plain words are weak markers, so both roles are required, and the text before the
    first marker must not contain markers of another template."""
    found = _after_each(_VICUNA_HEADER, text=text)
    if not any(match["role"] == "ASSISTANT" for match, _ in found):
        return []
    system = _without_edges(text[: found[0][0].start()]).strip()
    if "<|" in system or "<｜" in system or "###" in system or FAMILIES.are_in(system):
        return []
    turns = [_Turn(role="system", content=system)] if system else []
    for match, said in found:
        content, end, after = said.partition("</s>")
        if not _is_padding(after):
            return []
        role: Role = "user" if match["role"] == "USER" else "assistant"
        turns.append(_Turn(role=role, content=content.removesuffix("\n").rstrip(" "), is_open=not end))
    return turns


def _headed(header: str, end: str, *, users_end: bool = True) -> _Template:
    """Return a template of the form `header(role) content end`.

    Args:
        header: pattern of the header, with the group `role`.
        end: pattern of the end of a turn.
        users_end: whether a user turn ends with `end`. False: it ends at a line end.
    """
    pattern = re.compile(header)
    read = _by_header(pattern, re.compile(end))
    return _Template(begins=pattern, read=read if users_end else _with_open_users(read))


_TEMPLATES = (
    _Template(begins=re.compile(r"<\|start\|>(?:system|developer|user|assistant)"), read=_harmony),
    _headed(  # ChatML, and Phi 4
        r"<\|im_start\|>(?P<role>[^\n<]*)(?:\n|<\|im_sep\|>)", r"<\|im_end\|>|<\|endoftext\|>"
    ),
    _headed(  # Llama 3
        r"<\|start_header_id\|>(?P<role>[^<\n]*)<\|end_header_id\|>(?:\n\n)?",
        r"<\|eot_id\|>|<\|eom_id\|>|<\|end_of_text\|>",
    ),
    _headed(  # Llama 4
        r"<\|header_start\|>(?P<role>[^<\n]*)<\|header_end\|>(?:\n\n)?", r"<\|eot\|>|<\|eom\|>|<\|end_of_text\|>"
    ),
    _headed(r"<start_of_turn>(?P<role>[^\n<]*)\n", r"<end_of_turn>|<eos>"),  # Gemma, up to 3
    _headed(r"<\|turn>(?P<role>[^\n<]*)\n", r"<turn\|>|<eos>"),  # Gemma 4
    _Template(begins=_DEEPSEEK_HEADER, read=_deepseek),
    _Template(begins=_SECTION, read=_inst),
    _headed(  # Zephyr, Phi, GLM, K-EXAONE
        r"<\|(?P<role>system|user|assistant|observation|tool)\|>\n?",
        r"\n?(?:</s>|<\|end\|>|<\|endoftext\|>|<\|endofturn\|>)",
    ),
    _headed(r"\[\|(?P<role>system|user|assistant|tool)\|\]\n?", r"\n?\[\|endofturn\|\]", users_end=False),  # EXAONE
    _headed(r"<seed:bos>(?P<role>\w+)\n", r"<seed:eos>"),  # Seed-OSS
    _headed(r"\]~b\](?P<role>\w+)[^\n\]]*\n", r"\[e~\["),  # MiniMax M2
    _headed(r"<beginning_of_sentence>(?P<role>\w+)[^\n<]*\n", r"<end_of_sentence>"),  # MiniMax 01 and M1
    _headed(r"<\|im_(?P<role>system|user|assistant)\|>[^<\n]*<\|im_middle\|>", r"<\|im_end\|>"),  # Kimi
    _headed(r"<\|start_of_role\|>(?P<role>[^<\n]*)<\|end_of_role\|>", r"<\|end_of_text\|>"),  # Granite
)
"""Templates whose turns begin with a distinctive marker."""
