"""Strings that a tokenizer reads as control tokens, and how to break them in untrusted text.

A chat template is rendered to one string before it is encoded, so a response that contains `<|im_end|>` could end its
turn. The strings come from the served tokenizer: its added tokens that are marked as special. If the tokenizer is not
known, such as behind a chat endpoint, the control tokens of all known model families are broken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any


class ControlTokens:
    """A set of control tokens to break in untrusted text.

    Args:
        tokens: texts of the tokens. Surrounding whitespace is stripped. Tokens of one character are ignored, because
            they cannot be broken.
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        spelled = {token.strip() for token in tokens}
        self.tokens = frozenset(token for token in spelled if len(token) > 1)
        self._pattern = _first_characters(self.tokens)

    def __contains__(self, token: str) -> bool:
        return token in self.tokens

    def are_in(self, text: str) -> bool:
        """Whether the text contains one of the tokens."""
        return self._pattern.search(text) is not None

    def broken(self, text: str) -> str:
        """Return the text with a space inserted after the first character of each token.

        >>> ControlTokens(["]~b]", "[e~["]).broken("x[e~[ ]~b]user")
        'x[ e~[ ] ~b]user'
        """
        return self._pattern.sub(r"\g<0> ", text)


def _first_characters(tokens: Iterable[str]) -> re.Pattern[str]:
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
    starts = [f"{re.escape(first)}(?={_alternatives(rest)})" for first, rest in sorted(trie.items())]
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

FAMILIES = ControlTokens(
    [*" ".join(_FAMILIES).split(), *(f"{begins}{digit}" for begins in _RESERVED for digit in range(10))]
)
"""Control tokens of widely used model families, for unknown tokenizers."""

NONE = ControlTokens([])
"""The empty set, for a tokenizer without control tokens."""
