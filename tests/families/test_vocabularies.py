"""The tokenizers built for the families give the ids that the families' own code gives."""

from __future__ import annotations

import random
import re
import string
import unicodedata
from pathlib import Path

import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.families.models import Families, ForcedModels, TinyModel, each_family
from tests.families.vocabularies import Vocabulary
from tirjudge.types import Sampling

ROOT = Path(__file__).parents[2]

TEXTS = {
    "code": (ROOT / "judge" / "tirjudge" / "loop.py").read_text(encoding="utf-8"),
    "html": '<div class="a">\r\n\t<p>1 &lt; 2</p>\r\n</div>\r\n\r\n\r\n',
    "prompt": (ROOT / "judge" / "tirjudge" / "formats" / "prompts" / "tirjudge_1" / "listwise_tools.txt").read_text(),
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪🇫🇷 ☝️ 1️⃣" * 3,
    "cjk": "判断哪个回答更好。以下は二つの回答です。두 개의 답변이 있습니다. 𠮷野家 ㍿ ｶﾞ",
    "scripts": "Ελληνικά русский العربية עברית हिन्दी ไทย Tiếng Việt ÅÅ ﬁ ǅ ʼn",
    "spaces": " \t\n\r\n \u00a0\u2003\u3000\u200b\ufeff  \n\n\n   x  \n \u2028\u2029\x0b\x0c\x85 ",
    "numbers": "1 12 123 1234 12345 1234567890 3.14159 1e-10 0x1F ١٢٣ ½ Ⅷ ²",
    "contractions": "I'm you're we'll they'd it's don't I'VE CAN'T 'tis ’s L'S ſ'ſ",
    "controls": "\x00\x01\x1b[31m\x7f\x80\x9f\ud7ff\ue000\ufffd\U0010ffff",
    "punctuation": string.punctuation * 3 + "//////\n/**/\n/// ```output\n<preference>A</preference><score>10</score>",
    "runs": "a" * 3000 + " " * 3000 + "\n" * 3000 + "=" * 3000 + "é" * 3000,
    "empty": "",
}


def expected_ids(vocabulary: Vocabulary, text: str, *, encoding: tiktoken.Encoding) -> list[int]:
    normal = unicodedata.normalize("NFC", text) if vocabulary.nfc else text
    return [rank + vocabulary.first_id for rank in encoding.encode_ordinary(normal)]


@each_family
def test_ids_are_those_of_tiktoken(family: str, families: Families) -> None:
    vocabulary, tokenizer = families.vocabulary(family), families.tokenizer(family)
    encoding = vocabulary.independent()
    for name, text in TEXTS.items():
        assert tokenizer.encode_now(text) == expected_ids(vocabulary, text, encoding=encoding), name

    # Hypothesis also draws texts of the source code. Some are added tokens, such as <tool_response> and [INST].
    @given(st.text(max_size=200).filter(lambda text: not re.search(r"<[|/]?\w|\[/?[A-Z_]+\]", text)))
    @settings(max_examples=150, database=None, deadline=None)
    def check(text: str) -> None:
        assert tokenizer.encode_now(text) == expected_ids(vocabulary, text, encoding=encoding)

    check()


@each_family
def test_shuffled_words_and_tokens_have_the_ids_of_tiktoken(family: str, families: Families) -> None:
    vocabulary, tokenizer = families.vocabulary(family), families.tokenizer(family)
    encoding = vocabulary.independent()
    rng = random.Random(family)
    readable = [token.decode() for token in vocabulary.ranks if _is_text(token)]
    for separator in ("", " ", "\n"):
        for _ in range(60):
            text = separator.join(rng.sample(readable, 25))
            found, expected = tokenizer.encode_now(text), expected_ids(vocabulary, text, encoding=encoding)
            if vocabulary.whole_pieces:
                assert found == expected, text
            else:  # Qwen's published merges: one per token, so that rare pieces are split elsewhere
                assert tokenizer.decode(found) == tokenizer.decode(expected)
                assert abs(len(found) - len(expected)) <= 1 + len(expected) // 20, text


def _is_text(token: bytes) -> bool:
    try:
        return bool(token.decode())
    except UnicodeDecodeError:
        return False


@each_family
def test_a_token_decodes_to_its_bytes(family: str, families: Families) -> None:
    vocabulary, tokenizer = families.vocabulary(family), families.tokenizer(family)
    expected = {rank + vocabulary.first_id: token for token, rank in vocabulary.ranks.items()}
    expected |= {token_id: token.encode() for token, token_id in vocabulary.added.items()}
    assert tokenizer.bytes_of == expected
    assert len(expected) == vocabulary.num_tokens <= vocabulary.num_ids


@each_family
async def test_control_tokens_are_the_tokens_marked_as_special(family: str, families: Families) -> None:
    vocabulary, tokenizer = families.vocabulary(family), families.tokenizer(family)
    assert set(vocabulary.special) <= (await tokenizer.control_tokens()).tokens
    for token, token_id in vocabulary.added.items():
        assert tokenizer.encode_now(f"a{token}b") == [*tokenizer.encode_now("a"), token_id, *tokenizer.encode_now("b")]


PUBLISHED_IDS = {
    "qwen3": {
        "<|endoftext|>": 151643,
        "<|im_start|>": 151644,
        "<|im_end|>": 151645,
        "<tool_call>": 151657,
        "</think>": 151668,
    },
    "llama3": {
        "<|begin_of_text|>": 128000,
        "<|start_header_id|>": 128006,
        "<|eot_id|>": 128009,
        "<|python_tag|>": 128010,
    },
    "llama4": {"<|begin_of_text|>": 200000, "<|header_start|>": 200005, "<|eot|>": 200008},
    "tekken": {"<unk>": 0, "<s>": 1, "</s>": 2, "[INST]": 3, "[/INST]": 4, "[TOOL_CALLS]": 9, "[SYSTEM_PROMPT]": 17},
}


@each_family
def test_added_tokens_have_their_published_ids(family: str, families: Families) -> None:
    vocabulary = families.vocabulary(family)
    assert {token: vocabulary.added[token] for token in PUBLISHED_IDS[family]} == PUBLISHED_IDS[family]


def test_tags_of_qwen3_are_not_special(families: Families) -> None:
    plain = families.vocabulary("qwen3").plain
    assert {"<think>", "</think>", "<tool_call>", "</tool_call>", "<|fim_prefix|>"} <= plain.keys()
    assert len(families.vocabulary("qwen3").special) == 14


SINGLE_TOKENS = {
    # family -> (letters X for which ">X" is no token, whether "10" is a token)
    "qwen3": ("QUWY", False),
    "llama3": ("QUWY", True),
    "llama4": ("QUXYZ", True),
    "tekken": ("BCDEFGHIJKLMNOPQRSTUVWXYZ", False),
}


@each_family
def test_labels_and_brackets_share_tokens_unevenly(family: str, families: Families) -> None:
    tokenizer = families.tokenizer(family)

    def is_one(text: str) -> bool:
        return len(tokenizer.encode_now(text)) == 1

    missing = "".join(letter for letter in string.ascii_uppercase if not is_one(f">{letter}"))
    assert (missing, is_one("10")) == SINGLE_TOKENS[family]
    assert not any(is_one(f">{score}") for score in range(1, 11))


@each_family
def test_bos_is_added_only_with_special_tokens(family: str, families: Families) -> None:
    vocabulary = families.vocabulary(family)
    read = families.tokenizer(family)._tokenizer
    start = [] if vocabulary.bos is None else [vocabulary.special[vocabulary.bos]]
    assert read.encode("Hi").ids == [*start, *families.tokenizer(family).encode_now("Hi")]


@each_family
async def test_small_models_write_tokens_of_the_vocabulary(
    family: str, families: Families, tiny_model: TinyModel, forced_model: ForcedModels
) -> None:
    ids = families.tokenizer(family).encode_now("Yes, 判")
    forced = forced_model(family, [ids])
    completion = await forced.generate([5], sampling=Sampling(max_tokens=len(ids), temperature=0.0), session="forced")
    assert (completion.token_ids, completion.text) == (tuple(ids), "Yes, 判")

    biased = tiny_model(family, bias={ids[0]: 1000.0})
    completion = await biased.generate([5, 6], sampling=Sampling(max_tokens=3), session="biased")
    assert completion.token_ids == (ids[0],) * 3
