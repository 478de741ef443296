"""Strings that a tokenizer reads as control tokens, and how to break them in untrusted text.

A chat template is rendered to one string before it is encoded, so a response that contains `<|im_end|>` could end its
turn. The strings come from the served tokenizer: its added tokens that are marked as special. `ControlTokens.served`
also has the tags of the chat template, such as `<think>` and `<tool_call>`: a model gives them a meaning, although most
tokenizers do not mark them as special. If the tokenizer is not known, such as behind a chat endpoint, the control
tokens of all known model families are broken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from copy import copy
from functools import cached_property
from typing import Any, Self

MAX_TAG_CHARS = 64
"""Maximum length of a tag-shaped string."""


class ControlTokens:
    """A set of control tokens to break in untrusted text.

    Args:
        tokens: texts of the tokens. Surrounding whitespace is stripped. Tokens of one character are ignored, because
            they cannot be broken.
        shape: pattern of further tokens; it matches their first character. "": none.
        served: the set that formats from `tirjudge/2` on break. None: the same set.

    Attributes:
        tokens: texts of the tokens.
    """

    def __init__(self, tokens: Iterable[str], *, shape: str = "", served: ControlTokens | None = None) -> None:
        spelled = {token.strip() for token in tokens}
        self.tokens = frozenset(token for token in spelled if len(token) > 1)
        self._pattern = _first_characters(self.tokens, shape=shape)
        self._served = served

    @classmethod
    def of(cls, special: Iterable[str], *, tags: Iterable[str]) -> Self:
        """Return the tokens of a known tokenizer: those that it marks as special, and the tags of its chat template,
        which only `served` has."""
        special, tags = frozenset(special), frozenset(tags)
        return cls(special, served=None if tags <= special else ControlTokens(special | tags))

    @property
    def served(self) -> ControlTokens:
        """Everything that the served model may read as control: special tokens and tags of the chat template."""
        return self if self._served is None else self._served

    def serving(self, served: ControlTokens) -> Self:
        """Return these tokens with another `served`."""
        other = copy(self)
        other._served = served
        return other

    def __contains__(self, token: str) -> bool:
        return token in self.tokens

    def are_in(self, text: str) -> bool:
        """Whether the text contains one of the tokens."""
        return self._pattern.search(text) is not None

    def found_in(self, text: str) -> set[str]:
        """Return the tokens that occur in the text.

        >>> sorted(ControlTokens(["[INST]", "<s>"]).found_in("a <s>[INST] [/INST]"))
        ['<s>', '[INST]']
        """
        starts = (match.start() for match in self._pattern.finditer(text))
        parts = {text[start : start + length] for start in starts for length in self._lengths}
        return parts & self.tokens

    @cached_property
    def _lengths(self) -> frozenset[int]:
        return frozenset(map(len, self.tokens))

    def broken(self, text: str) -> str:
        """Return the text with a space inserted after the first character of each token.

        >>> ControlTokens(["]~b]", "[e~["]).broken("x[e~[ ]~b]user")
        'x[ e~[ ] ~b]user'
        """
        return self._pattern.sub(r"\g<0> ", text)


_TAG = re.compile(
    rf"<[^\s<>]{{1,{MAX_TAG_CHARS - 2}}}>"
    rf"|\[[^\s\[\]]{{1,{MAX_TAG_CHARS - 2}}}\]"
)
_HTML_TAG = re.compile(
    r"</?(?:"
    r"a|abbr|address|area|article|aside|audio|b|base|bdi|bdo|blockquote|body|br|button|canvas|caption|center"
    r"|cite|code|col|colgroup|data|datalist|dd|del|details|dfn|dialog|div|dl|dt|em|embed|fieldset|figcaption"
    r"|figure|font|footer|form|frame|h[1-6]|head|header|hgroup|hr|html|i|iframe|img|input|ins|kbd|label|legend"
    r"|li|link|main|map|mark|menu|meta|meter|nav|noscript|object|ol|optgroup|option|output|p|param|picture|pre"
    r"|progress|q|rp|rt|ruby|s|samp|script|search|section|select|slot|small|source|span|strike|strong|style"
    r"|sub|summary|sup|svg|table|tbody|td|template|textarea|tfoot|th|thead|time|title|tr|track|tt|u|ul|var"
    r"|video|wbr"
    r")/?>",
    re.IGNORECASE,
)
_CAPITALS = re.compile(r"\[(?:/?[a-z]?[A-Z][A-Z_]{1,60}|\|\w{1,60}\|)\]")


def tags_in(text: str) -> list[str]:
    """Return the distinct strings in a text that look like control tokens, in their order: a name of two or more letters
    in angle or square brackets, without blanks, at most `MAX_TAG_CHARS` long. Tags of HTML and indexes, such as `[0]`,
    are excluded.

    >>> tags_in("<b>x[0]</b> <think> [INST] a[i] <|im_end|> <think>")
    ['<think>', '[INST]', '<|im_end|>']
    """
    return [tag for tag in dict.fromkeys(_TAG.findall(text)) if _is_name(tag) and _HTML_TAG.fullmatch(tag) is None]


def tag_literals(source: str) -> frozenset[str]:
    """Return the tags in the source of a chat template, such as `<think>`, `</tool_call>`, `[INST]` or `<|im_start|>`.

    Of names in square brackets, only those in capital letters and those between bars (`[|user|]`) count, because the
    others are indexes of the template language.

    >>> sorted(tag_literals("{{ '[INST]' + messages[0]['content'] + '</think>' }}<|end|>"))
    ['</think>', '<|end|>', '[INST]']
    """
    return frozenset(tag for tag in tags_in(source) if tag[0] == "<" or _CAPITALS.fullmatch(tag))


def _is_name(tag: str) -> bool:
    return sum(map(str.isalpha, tag)) > 1 and not set(tag) & set("\"'(){},;=\\")


def _first_characters(tokens: Iterable[str], *, shape: str) -> re.Pattern[str]:
    """Return a pattern that matches the first character of each token, with a lookahead for the rest.

    The lookahead finds overlapping tokens in one pass. The cost per position is bounded by the length of the longest
    token.
    """
    trie: dict[str, Any] = {}
    for token in tokens:
        node = trie
        for character in token:
            node = node.setdefault(character, {})
        node[""] = {}
    starts = [shape] if shape else []
    starts += [f"{re.escape(first)}(?={_alternatives(rest)})" for first, rest in sorted(trie.items())]
    return re.compile("|".join(starts) or r"(?!)")


def _alternatives(node: dict[str, Any]) -> str:
    """Return the pattern of the rest of a trie node. It is empty where a token ends: that also breaks longer tokens."""
    if "" in node:
        return ""
    branches = [re.escape(character) + _alternatives(rest) for character, rest in sorted(node.items())]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


_FAMILIES = (
    # Tokens of the form `<|...|>` and `<｜...｜>` are not listed, because `neutralise` in formats/texts.py breaks all of
    # them: Qwen, Llama 3 and 4, Kimi, Granite, Harmony, ...
    "<s> </s> <unk> <pad> <bos> <eos> <mask> <cls> <sep> <<SYS>> <</SYS>>",
    # Mistral, up to the thirteenth version of Tekken.
    "[INST] [/INST] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [MODEL_SETTINGS] [/MODEL_SETTINGS] [THINK] [/THINK] [ARGS] [CALL_ID]",
    "[AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_CALLS] [TOOL_RESULTS] [/TOOL_RESULTS] [TOOL_CONTENT] [IMG] [IMG_BREAK]",
    "[IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [AUDIO] [BEGIN_AUDIO] [TRANSCRIBE] [STREAMING_PAD] [STREAMING_WORD]",
    "[NEXT_AUDIO_TEXT] [REPEAT_AUDIO_TEXT]",
    # EXAONE, Kimi, GLM.
    "[|system|] [|user|] [|assistant|] [|tool|] [|endofturn|] <thought> </thought> [BOS] [EOS] [PAD] [UNK] [EOT] [CLS] [SEP]",
    "[MASK] [gMASK] [sMASK] [start_header_id] [end_header_id] <sop> <eop> <arg_key> </arg_key> <arg_value> </arg_value>",
    "/nothink",
    # Seed-OSS, MiniMax.
    "<seed: </seed: ]~b] ]~!b[ [e~[ ]!p~[ ]!d~[ ]<] <minimax: </minimax: <beginning_of_sentence> <end_of_sentence>",
    "<function_call> <code_interpreter>",
    # Gemma.
    "<start_of_turn> <end_of_turn> <start_of_image> <end_of_image> <image_soft_token> <start_of_audio> <end_of_audio>",
    "<audio_soft_token> <turn|> <channel|> <tool|> <tool_call|> <tool_response|> <image|> <audio|> <video|>",
    # DeepSeek, Cohere, Ling, MiniCPM, SmolVLM.
    "｜DSML｜ <dsml: </dsml: <BOS_TOKEN> <EOS_TOKEN> <EOP_TOKEN> <MASK_TOKEN> <PAD> <UNK> <role> </role> <用户> <AI>",
    "<end_of_utterance>",
    # Code models. `<filename>` and `<reponame>` are excluded because they are common in usage messages.
    "<fim_prefix> <fim_middle> <fim_suffix> <fim_pad> <file_sep> <gh_stars> <repo_name> <issue_start> <issue_comment>",
    "<issue_closed> <commit_before> <commit_msg> <commit_after> <commit_message> <jupyter_start> <jupyter_text>",
    "<jupyter_code> <jupyter_output> <jupyter_error> <jupyter_script> <empty_output> <empty_source_file> <add_file>",
    "<delete_file> <rename_file> <edit_file> <repo_struct> <code_context> <file_content> <source_files> <pr_start>",
    "<review_comment>",
)
_RESERVED = ("<unused", "[unused", "<SPECIAL_", "<extra_id_", "[extra_id_", "<reserved_", "[UNUSED_TOKEN_", "<mask:")
"""Prefixes of reserved tokens that end in a number. Nemotron, InternLM, Pangu and Baichuan use such tokens for
turns."""

_KNOWN = [*" ".join(_FAMILIES).split(), *(f"{begins}{digit}" for begins in _RESERVED for digit in range(10))]

FAMILIES = ControlTokens(
    _KNOWN,
    served=ControlTokens(
        [*_KNOWN, "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"],
        shape=rf"<(?=[|｜][^\s<>]{{1,{MAX_TAG_CHARS - 3}}}>)",
    ),
)
"""Control tokens of widely used model families, for unknown tokenizers. `served` also has the tokens of the form
`<|...|>` and `<｜...｜>`, and tags of templates."""

NONE = ControlTokens([])
"""The empty set, for a tokenizer without control tokens."""
