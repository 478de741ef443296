"""Untrusted text in a prompt never contains a control token of the model."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tirjudge.control_tokens import FAMILIES, NONE, ControlTokens, tag_literals
from tirjudge.engines.scripted import ByteTokenizer
from tirjudge.engines.tokenization import LocalTokenizer
from tirjudge.formats.texts import as_served, neutralise
from tirjudge.formats.tirjudge_1 import FORMAT
from tirjudge.types import MODEL_MODES, ExecResult, Mode, Outcome

SERVED = {
    "qwen3": "<|im_start|> <|im_end|> <|endoftext|> <think> </think> <tool_call> </tool_call> <tool_response>",
    "llama3": "<|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> <|python_tag|>",
    "llama4": "<|header_start|> <|header_end|> <|eot|> <|eom|>",
    "llama2": "[INST] [/INST] <s> </s> <unk> <<SYS>> <</SYS>>",
    "gemma3": "<bos> <eos> <start_of_turn> <end_of_turn> <start_of_image> <image_soft_token> <unused99> <pad>",
    "gemma4": "<|turn> <turn|> <|channel> <channel|> <|think|> <|tool_call> <tool_call|> <tool_response|>",
    "mistral": "[SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CALLS] [TOOL_CONTENT] [ARGS] [CALL_ID] [THINK] [/THINK] "
    "[AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] [IMG] [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] "
    "[SUFFIX] [AUDIO] [BEGIN_AUDIO] [TRANSCRIBE] [MODEL_SETTINGS] [/MODEL_SETTINGS] <SPECIAL_36>",
    "exaone": "[|system|] [|user|] [|assistant|] [|tool|] [|endofturn|] [BOS] [EOS] [PAD] [UNK] <thought> </thought>",
    "seed-oss": "<seed:bos> <seed:eos> <seed:pad> <seed:think> </seed:think> <seed:tool_call> <seed:cot_budget_reflect>",
    "minimax-m2": "]~b] ]~!b[ [e~[ ]!p~[ ]!d~[ ]<]image[>[ ]<]vision_pad[>[ <minimax:tool_call> </minimax:tool_call> "
    "<fim_prefix> <jupyter_start> <commit_msg> <file_sep> <code_interpreter> <function_call>",
    "minimax-m1": "<beginning_of_sentence> <end_of_sentence>",
    "glm": "[gMASK] [sMASK] [MASK] <sop> <eop> <|user|> <|observation|> <arg_key> </arg_value> /nothink",
    "kimi": "<|im_user|> <|im_middle|> [BOS] [EOS] [EOT] [PAD] [UNK] [start_header_id] [end_header_id]",
    "deepseek": "<｜begin▁of▁sentence｜> <｜User｜> <｜Assistant｜> <｜end▁of▁sentence｜> ｜DSML｜ <dsml:",
    "harmony": "<|start|> <|channel|> <|message|> <|return|> <|call|>",
    "granite": "<|start_of_role|> <|end_of_role|> <|end_of_text|> <gh_stars>",
    "hunyuan": "<｜hy_User｜> <｜hy_place▁holder▁no▁2｜> <|startoftext|>",
    "ernie": "<|begin_of_sentence|> <mask:1> <s> </s>",
    "nemotron": "<SPECIAL_10> <SPECIAL_11> <extra_id_0>",
    "cohere": "<|START_OF_TURN_TOKEN|> <BOS_TOKEN> <EOP_TOKEN>",
}


@pytest.mark.parametrize("family", SERVED)
async def test_the_control_tokens_of_every_known_family_are_broken(family: str) -> None:
    known = await ByteTokenizer().control_tokens()
    shown = neutralise(SERVED[family] + SERVED[family].replace(" ", ""), control_tokens=known)
    for token in SERVED[family].split():
        assert token not in shown, shown


@pytest.mark.parametrize(
    "text",
    [
        "if a[i] < b and b > c[0]: x |= {1, 2}",
        "let a = [|1; 2|] in a.(0)",
        "<div class='user'><p>Hi</p></div> <unused variable> [unused arguments]",
        "Usage: tool [OPTIONS] <filename> <reponame>",
        "| a | b |\n|---|---|\n| [x] | ~b |",
        "]~ [e ]! ]< <seed> [user] [|x|] /no think",
        "# a\n\n\n\n    b\t**c** `d`",
    ],
)
@pytest.mark.parametrize("control_tokens", [FAMILIES, NONE, ControlTokens(["]~b]", "[e~[", "<|im_end|>"])])
def test_harmless_text_is_unchanged(text: str, control_tokens: ControlTokens) -> None:
    assert neutralise(text, control_tokens=control_tokens) == text


def tokenizer_with(*special: str, plain: tuple[str, ...] = ()) -> LocalTokenizer:
    """Return a byte-level tokenizer with added tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    tokenizer.add_tokens([AddedToken(token) for token in plain])
    return LocalTokenizer(tokenizer)


@pytest.mark.parametrize(
    ("source", "tags"),
    [
        ("{{- '<|im_start|>user\\n' }}{{ messages[0]['content'] }}", {"<|im_start|>"}),
        ("{%- if a < b and c > d %}{{ x[i] }}{{ y[KEY] }}{%- endif %}", {"[KEY]"}),
        ("{{ '<think>' }}</think><tool_call>\\n{\"name\": ", {"<think>", "</think>", "<tool_call>"}),
        (
            "[INST] [/INST] [gMASK] [|user|] [SYSTEM_PROMPT]",
            {"[INST]", "[/INST]", "[gMASK]", "[|user|]", "[SYSTEM_PROMPT]"},
        ),
        ("<｜User｜><｜end▁of▁sentence｜><seed:think>", {"<｜User｜>", "<｜end▁of▁sentence｜>", "<seed:think>"}),
        ("<br> <table> <p></p> <H1> < x > <> <1> [0] [-1] [:2] [a, b] ['x']", set()),
        (f"<{'x' * 63}> <{'y' * 62}>", {f"<{'y' * 62}>"}),
    ],
)
def test_tags_of_a_chat_template_are_found(source: str, tags: set[str]) -> None:
    assert tag_literals(source) == tags


def test_tags_of_a_template_are_broken_by_newer_formats_only() -> None:
    known = ControlTokens.of(["<|im_end|>"], tags=["<think>", "<|im_end|>"])
    assert known.broken("<think><|im_end|>") == "<think>< |im_end|>"
    assert known.served.broken("<think><|im_end|>") == "< think>< |im_end|>"
    assert NONE.served is NONE
    assert ControlTokens.of(["a>"], tags=["a>"]).served.tokens == {"a>"}


ODD = ("]~b]", "]~!b[", "[e~[", "<new:turn>", " <padded> ", "[e", "🙂turn🙂", "</new>")


async def test_control_tokens_are_the_special_tokens_of_the_tokenizer() -> None:
    known = await tokenizer_with("<new:turn>", "[e~[", plain=("\n\n", "<table>", "```")).control_tokens()
    assert known.tokens == {"<new:turn>", "[e~["}
    text = "<new:turn>x [e~[ <table>\n\n [MASK] /nothink"
    assert neutralise(text, control_tokens=known) == "< new:turn>x [ e~[ <table>\n\n [MASK] /nothink"


@given(st.lists(st.sampled_from([*ODD, *"]~[e<>! 🙂", "b]", "~b", "turn"]), max_size=12).map("".join))
async def test_no_shown_text_encodes_to_a_control_token(text: str) -> None:
    local = tokenizer_with(*ODD)
    control = {local.encode_now(token)[0] for token in ODD}
    for break_in in (neutralise, as_served):
        shown = break_in(text, control_tokens=await local.control_tokens())
        assert not control & set(local.encode_now(shown))
        assert break_in(shown, control_tokens=await local.control_tokens()) == shown
        assert re.sub(r"\s", "", shown) == re.sub(r"\s", "", text)


@pytest.mark.parametrize("mode", MODEL_MODES)
def test_control_tokens_are_neutralized_in_every_text_of_a_request(mode: Mode) -> None:
    token = "[e~["
    shown = FORMAT.render_prompt(
        mode,
        prompt=token,
        responses=[token] * (1 if mode is Mode.POINTWISE else 2),
        reference=token,
        rubric=token,
        tools=True,
        max_tool_calls=3,
        prompt_chars=100,
        response_chars=100,
    )
    assert token not in shown
    assert "[ e~[" in shown


def test_control_tokens_are_broken_in_program_output() -> None:
    printed = ExecResult(outcome=Outcome.OK, stdout="[e~[\n")
    failed = ExecResult(outcome=Outcome.ERROR, error="ValueError: [e~[")
    assert FORMAT.shown_output(printed, limit=99) == "[ e~["
    assert FORMAT.shown_output(failed, limit=99) == "ValueError: [ e~["
    assert FORMAT.shown_output(printed, limit=99, control_tokens=NONE) == "[e~["


def test_thousands_of_reserved_tokens_are_found() -> None:
    many = ControlTokens(f"<unused{number}>" for number in range(6000))
    for text in ("<unused" * 40_000, "<" * 300_000, "<unused59999" * 20_000):
        assert many.broken(text) == text
    assert many.broken("<unused5999>") == "< unused5999>"
