"""A chat that was rendered for a model, special tokens and all, becomes a conversation and the last answer to it.

Trainers decode what their policy saw and wrote, and send that one string. Where they send the rendered prompt as well, it
decides alone: the answer is what follows it, whatever it contains.

Where only the text is there, it has to have one reading. A policy can write any marker that a template has, so a second turn
of the assistant may be one that the first answer made up, with a question of its own before it. So a text is read if

- it begins with a turn of a known template, after tokens of padding and beginning alone,
- nothing stands between the end of a turn and the next one, or after the last one,
- the assistant has one turn, the last one. (In Harmony its messages and those of its tools are one turn.)

A conversation of several answers therefore needs its prompt beside it. What has no reading, or more than one, is None: the
caller abstains, and nothing is guessed. Every reader is a scanner or one anchored pass, linear in the text.
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
"""`full`: the answer with the reasoning that leads to it. `final`: without."""

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
"""A token that may pad a text before its first turn or after its last one, whatever its name."""
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
    """A response, and what it answers."""

    prompt: str | tuple[ChatMessage, ...]
    """Text if it was rendered by no template that is known."""
    response: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    role: Role
    content: str
    is_open: bool = False
    """Whether the text ended before the turn did."""


def detemplate(text: str, *, prompt: str | None = None, view: ResponseView = "full") -> RenderedExchange | None:
    """The exchange in a rendered chat; None if it has no reading, or more than one.

    Args:
        text: prompt and response, decoded with their special tokens.
        prompt: the rendered prompt alone, if it is known; `text` begins with it, up to tokens of padding and beginning. It
            decides alone: a text that does not begin with it has no reading.
        view: of the response.
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
    """The exchange of a prompt that is known, and what follows it."""
    response = _harmony_answer(_harmony_messages(rest, begun=True), view=view) if _is_harmony(prompt) else None
    return RenderedExchange(
        prompt=conversation_of(prompt) or _without_edges(prompt),
        response=view_of(without_end(rest), view=view) if response is None else response,
    )


def conversation_of(prompt: str) -> tuple[ChatMessage, ...] | None:
    """The turns of a rendered prompt without the answer that it opens at its end; None if no template is recognised."""
    found = _template_at_start(prompt)
    turns = found[0].read(prompt[found[1] :]) if found else []
    if turns and turns[-1].role == "assistant" and turns[-1].is_open:
        turns = turns[:-1]
    return _messages(turns)


def _messages(turns: Sequence[_Turn]) -> tuple[ChatMessage, ...] | None:
    """The turns as messages; None if they say nothing."""
    if not any(turn.content.strip() for turn in turns):
        return None
    return tuple(ChatMessage(role=turn.role, content=turn.content) for turn in turns)


def without_end(text: str) -> str:
    """A response without the special tokens that end and pad it, and the white space between those."""
    match = _EDGES_BACKWARDS.match(text[::-1])
    return text[: len(text) - match.end()] if match else text


def view_of(response: str, *, view: ResponseView) -> str:
    """A response with or without its reasoning. Reasoning that never ended leaves no answer: the empty text.

    A template may have opened the reasoning already, so the closing tag alone counts.
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
    """What follows the prompt in the text; tokens of padding and beginning may differ between the two."""
    if text.startswith(prompt):
        return text[len(prompt) :]
    bare_text, bare_prompt = text[_edges_end(text) :], prompt[_edges_end(prompt) :]
    return bare_text[len(bare_prompt) :] if bare_prompt and bare_text.startswith(bare_prompt) else None


def _edges_end(text: str, place: int = 0) -> int:
    """Where the tokens of padding and beginning end that stand at a place, with the white space between them."""
    match = _EDGES_HERE.match(text, place)
    return match.end() if match else place


def _is_padding(text: str) -> bool:
    return _PADDING_HERE.fullmatch(text) is not None


def _without_edges(text: str) -> str:
    return without_end(text[_edges_end(text) :])


# Templates. Each is known by how its first turn begins, and reads the whole text.

_NO_TURN = _Turn(role="system", content="")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Template:
    begins: re.Pattern[str]
    """Matches where its first turn begins."""
    read: Callable[[str], list[_Turn]]
    """The turns of a text that begins with one; [] if it is malformed."""


def _template_at_start(text: str) -> tuple[_Template, int] | None:
    """The template that a text is rendered by, and where its first turn begins; None if none is known."""
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
    # Its system's turn has no header, so the token before it has to be there.
    if text.startswith(_DEEPSEEK_BEGIN, place - len(_DEEPSEEK_BEGIN)) and place >= len(_DEEPSEEK_BEGIN):
        return _Template(begins=_DEEPSEEK_HEADER, read=_deepseek), place
    return None


def _after_each(header: re.Pattern[str], *, text: str) -> list[tuple[re.Match[str], str]]:
    """Each header, and the text from there to the next one."""
    headers = list(header.finditer(text))
    stops = [*(match.start() for match in headers), len(text)][1:]
    return [(match, text[match.end() : stop]) for match, stop in zip(headers, stops, strict=False)]


def _by_header(header: re.Pattern[str], end: re.Pattern[str]) -> Callable[[str], list[_Turn]]:
    """Reads templates of the shape `header(role) content end`."""

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
    """For templates in which a user's turn ends with its line, where the assistant's header begins."""

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
    begun = _DEEPSEEK_HEADER.search(text)
    # A user's turn has no end of its own.
    turns = [
        _Turn(role=turn.role, content=turn.content, is_open=turn.is_open and turn.role == "assistant")
        for turn in _deepseek_turns(text)
    ]
    system = _without_edges(text[: begun.start()]) if begun else ""
    return [_Turn(role="system", content=system), *turns] if system and turns else turns


@dataclass(slots=True, kw_only=True)
class _Message:
    """One message of Harmony, being read."""

    role: list[str] = field(default_factory=list)
    channel: list[str] = field(default_factory=list)
    content: str | None = None
    """None: its content has not begun."""
    is_open: bool = True

    @property
    def name(self) -> Role | None:
        """Whose it is; programs that were called answer under names with a dot."""
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


def _harmony_messages(text: str, *, begun: bool = False) -> list[_Message]:
    """The messages of a Harmony chat, in one pass; [] if it is malformed: text stands outside of them, or one has two
    contents.

    Args:
        text: whole, or a piece of one.
        begun: the text begins inside of the header of a message of the assistant.
    """
    parts = _HARMONY_TOKENS.split(text)
    messages = [_Message(role=["assistant"])] if begun else []
    into = "role" if begun else None
    if begun and parts[0].strip() and not parts[0].startswith(" to="):
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
    """Messages of the assistant in a row are one turn; what it writes in other channels leads to the final one."""
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
    """The exchange of a whole chat: from the first message of the assistant on, all are its own or those of its tools."""
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
    """The last answer in the messages that a model and its tools wrote; None if they are of anybody else, or have no content.

    In the full view the analysis stands before it, in the tags that reasoning has everywhere else.
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
    """Llama 2, and Mistral from its first template to Tekken: the tags are the same, the spaces beside them are not."""
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
    """The turns between two tags."""
    if name == "INST":
        return _llama2_user(content)
    return [_Turn(role="tool" if name == "TOOL_RESULTS" else "system", content=content)]


def _llama2_user(text: str) -> list[_Turn]:
    """What stands between the tags of a user's turn: Llama 2 has the system's turn in it."""
    turns: list[_Turn] = []
    with_system = _LLAMA2_SYSTEM.match(text)
    if with_system:
        system, _, text = text[with_system.end() :].partition("<</SYS>>")
        turns.append(_Turn(role="system", content=system.removesuffix("\n")))
        text = text.lstrip("\n")
    return [*turns, _Turn(role="user", content=text.removeprefix(" ").removesuffix(" "))]


_VICUNA_HEADER = re.compile(r"(?:(?<=^)|(?<=\s)|(?<=</s>))(?P<role>USER|ASSISTANT): ?")
_VICUNA_BEGINS = re.compile(r"(?:[^\n]*?\s)??USER: ")
"""Plain words are weak markers: what stands before them is one line."""


def _vicuna(text: str) -> list[_Turn]:
    """Plain words are weak markers: both roles must be there, and what stands before the first of them must not spell the
    markers of another template."""
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
    """A template of the shape `header(role) content end`.

    Args:
        header: a pattern with the group `role`.
        end: a pattern.
        users_end: whether a user's turn has an end of its own.
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
"""The templates whose turns begin with a marker of their own."""
