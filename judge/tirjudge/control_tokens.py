"""The strings that a tokenizer reads as control tokens, and how they are broken in a text that is only shown.

A chat template is rendered to one string before it is encoded, so a response that spells `<|im_end|>` would end the turn that
shows it. The source of truth is the served tokenizer: its added tokens that are marked as special. Where the tokenizer is not
known, as behind a chat endpoint, the tokens of all model families are broken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any


class ControlTokens:
    """Strings to break.

    Args:
        tokens: as their tokenizer spells them. White space around them is left out, and what is then a single character
            cannot be broken.
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        spelled = {token.strip() for token in tokens}
        self.tokens = frozenset(token for token in spelled if len(token) > 1)
        self._pattern = _first_characters(self.tokens)

    def __contains__(self, token: str) -> bool:
        return token in self.tokens

    def are_in(self, text: str) -> bool:
        """Whether the text spells one of them."""
        return self._pattern.search(text) is not None

    def broken(self, text: str) -> str:
        """The text with a space after the first character of each of them.

        >>> ControlTokens(["]~b]", "[e~["]).broken("x[e~[ ]~b]user")
        'x[ e~[ ] ~b]user'
        """
        return self._pattern.sub(r"\g<0> ", text)


def _first_characters(tokens: Iterable[str]) -> re.Pattern[str]:
    """Matches the first character of each token. Only looks at the rest, so tokens that overlap are all found, in one pass
    whose cost at a place is bounded by the longest token."""
    trie: dict[str, Any] = {}
    for token in tokens:
        node = trie
        for character in token:
            node = node.setdefault(character, {})
        node[""] = {}
    starts = [f"{re.escape(first)}(?={_alternatives(rest)})" for first, rest in sorted(trie.items())]
    return re.compile("|".join(starts) or r"(?!)")


def _alternatives(node: dict[str, Any]) -> str:
    """What follows a beginning; nothing where a token ends, since a longer one is broken with it."""
    if "" in node:
        return ""
    branches = [re.escape(character) + _alternatives(rest) for character, rest in sorted(node.items())]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


_FAMILIES = (
    # Every `<|...|>` and `<｜...｜>` is broken anyway (see `render`): Qwen, Llama 3 and 4, Kimi, Granite, Harmony, ...
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
    # Models of code. `<filename>` and `<reponame>` are ordinary words of a usage message, and are left alone.
    "<fim_prefix> <fim_middle> <fim_suffix> <fim_pad> <file_sep> <gh_stars> <repo_name> <issue_start> <issue_comment>",
    "<issue_closed> <commit_before> <commit_msg> <commit_after> <commit_message> <jupyter_start> <jupyter_text>",
    "<jupyter_code> <jupyter_output> <jupyter_error> <jupyter_script> <empty_output> <empty_source_file> <add_file>",
    "<delete_file> <rename_file> <edit_file> <repo_struct> <code_context> <file_content> <source_files> <pr_start>",
    "<review_comment>",
)
_RESERVED = ("<unused", "[unused", "<SPECIAL_", "<extra_id_", "[extra_id_", "<reserved_", "[UNUSED_TOKEN_", "<mask:")
"""How reserved tokens begin that end in a number. Nemotron, InternLM, Pangu and Baichuan make their turns of such."""

FAMILIES = ControlTokens(
    [*" ".join(_FAMILIES).split(), *(f"{begins}{digit}" for begins in _RESERVED for digit in range(10))]
)
"""Of the models that people serve, for a tokenizer that is not known."""

NONE = ControlTokens([])
"""Of a tokenizer without any."""
