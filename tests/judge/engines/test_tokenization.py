"""The tokenizer of the embedded engine, stop strings in bytes, and ids that decode to the text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from tirjudge.engines.tokenization import LocalTokenizer, StopMatch, find_stop
from tirjudge.errors import CheckpointError
from tirjudge.types import Completion

property_test = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

PIECES = ["``", "`", "```output", "\n", "\n\n\n", "🙂", "ö", "</preference>", "<|im_end|>", " B", ".", "Café"]
STOPS = ("```output", "</preference>", "\n\n", "🙂\n", "..")


@pytest.fixture(scope="module")
def local(tokenizer: Tokenizer) -> LocalTokenizer:
    return LocalTokenizer(tokenizer)


async def test_the_prompt_is_one_user_message_in_chatml(tokenizer: Tokenizer, local: LocalTokenizer):
    ids = await local.encode_prompt("Which is better?")
    assert local.decode(ids) == "<|im_start|>user\nWhich is better?<|im_end|>\n<|im_start|>assistant\n"
    start, end = (tokenizer.token_to_id(token) for token in ("<|im_start|>", "<|im_end|>"))
    assert [i for i in ids if i in (start, end)] == [start, end, start]


@property_test
@given(ids=st.lists(st.integers(0, 383), max_size=20))
def test_decoding_equals_decoding_by_the_tokenizers_library(
    tokenizer: Tokenizer, local: LocalTokenizer, ids: list[int]
):
    assert local.decode(ids) == tokenizer.decode(ids, skip_special_tokens=False)


@property_test
@given(text=st.text())
def test_decoding_is_the_inverse_of_encoding(local: LocalTokenizer, text: str):
    assert local.decode(local.encode_now(text)) == text


def test_a_padded_vocabulary_has_ids_without_text(tokenizer: Tokenizer):
    assert LocalTokenizer(tokenizer).decode([65, 100_000, 65]) == tokenizer.decode([65, 65])


def test_the_stop_string_that_ends_first_wins():
    assert find_stop(b"one two", stop=("two", "one"), num_seen=0) == StopMatch(text="one", end=3)
    assert find_stop(b"one two", stop=("two", "one"), num_seen=3) == StopMatch(text="two", end=7)
    assert find_stop(b"one two", stop=("three",), num_seen=0) is None
    assert find_stop(b"one two", stop=(), num_seen=0) is None


def test_a_stop_string_may_begin_in_searched_bytes():
    assert find_stop("a🙂b".encode(), stop=("🙂b",), num_seen=3) == StopMatch(text="🙂b", end=6)


@property_test
@given(data=st.data())
def test_fitted_ids_decode_to_the_text_for_any_stop_position(local: LocalTokenizer, data: st.DataObject):
    usable = sorted({i for piece in PIECES for i in local.encode_now(piece)})
    written, sampled, match = b"", [], None
    for token_id in data.draw(st.lists(st.sampled_from(usable), min_size=1, max_size=30)):
        sampled.append(token_id)
        num_seen, written = len(written), written + local.bytes_of[token_id]
        match = find_stop(written, stop=STOPS, num_seen=num_seen)
        if match is not None:
            break
    text = written[: match.end if match else None].decode(errors="replace")
    completion = Completion(
        text=text,
        token_ids=tuple(sampled),
        logprobs=(-1.0,) * len(sampled),
        finish_reason="stop" if match else "length",
        stop=match.text if match else None,
    )
    fitted = local.fit_ids_to_text(completion)
    num_sampled = len(fitted.token_ids) - fitted.num_appended
    assert local.decode(fitted.token_ids) == fitted.text == text
    assert fitted.token_ids[:num_sampled] == tuple(sampled[:num_sampled])
    assert fitted.logprobs == (-1.0,) * num_sampled + (0.0,) * fitted.num_appended
    assert match is None or (text.endswith(match.text) and not any(stop in text[:-1] for stop in STOPS))


def test_all_tokens_of_a_split_character_are_dropped_and_encoded_again(tokenizer: Tokenizer):
    local = LocalTokenizer(tokenizer)
    local.bytes_of = {0: b"a\xf0\x9f", 1: b"\x99\x83\nrest", 2: b"b"}
    completion = Completion(
        text="ba🙃\n", token_ids=(2, 0, 1), logprobs=(-1.0, -2.0, -3.0), finish_reason="stop", stop="\n"
    )
    fitted = local.fit_ids_to_text(completion)
    appended = local.encode_now("a🙃\n")
    assert fitted.token_ids == (2, *appended)
    assert fitted.logprobs == (-1.0, *(0.0 for _ in appended))
    assert fitted.num_appended == len(appended)


def test_a_tokenizer_that_is_not_byte_level_is_rejected(tmp_path: Path):
    with pytest.raises(CheckpointError, match="byte-level"):
        LocalTokenizer(Tokenizer(models.BPE()))
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        LocalTokenizer.load(tmp_path)
