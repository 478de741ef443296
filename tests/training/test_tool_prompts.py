"""Prompts whose checks call tools: the writers' files, the drawn prompts, and the tokens of their programs."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from tokenizers import Tokenizer

from tirjudge.model import bundled_checkpoint
from tirjudge.types import Mode
from tirjudge_training.bundled.checked import FAILURES, CheckedShares, drawn_example, frozen_texts, judgment
from tirjudge_training.bundled.tokenizer import train_copying_tokenizer, with_whole
from tirjudge_training.instructions import tool_prompts
from tirjudge_training.instructions.composing import Composer, composer_of
from tirjudge_training.instructions.tool_prompts import (
    EXAMPLES,
    HELD_OUT_TOOL_WRITERS,
    TRAINING_TOOL_WRITERS,
    called,
    draw_code,
    draw_lookup,
    draw_question_of_task,
    tool_texts,
)
from tirjudge_training.instructions.written import TRAINING_WRITERS, normalized


@pytest.fixture(scope="module")
def composer() -> Composer:
    return composer_of(TRAINING_WRITERS)


@pytest.mark.parametrize("writers", [TRAINING_TOOL_WRITERS, HELD_OUT_TOOL_WRITERS])
def test_writers_wrote_enough(writers: tuple[str, ...]) -> None:
    texts = tool_texts(writers)
    kinds = Counter(one.function for one in texts.lookups)
    assert min(kinds.values()) >= 16 * len(writers)
    assert kinds["tells"] >= 70 * len(writers)
    assert Counter(has_examples for has_examples, _ in texts.code)[True] >= 35 * len(writers)


def test_no_text_for_training_is_one_of_the_held_out_writer() -> None:
    training, held_out = (
        {normalized(text) for text in (*(one.text for one in texts.lookups), *(text for _, text in texts.code))}
        for texts in map(tool_texts, (TRAINING_TOOL_WRITERS, HELD_OUT_TOOL_WRITERS))
    )
    assert training & held_out == set()


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("lookups.txt", 'fact "{e}" "{a}" | What is the {a}?'),
        ("lookups.txt", "what | Where is {e}?"),
        ("lookups.txt", "none | Is {e} near {q}?"),
        ("lookups.txt", 'fact "{e}" "earn" = salary | How much does {e} get?'),
        ("lookups.txt", 'fact "{e}" | What of {e}?'),
        ("code.txt", "Write a function."),
    ],
)
def test_invalid_lines_are_refused(monkeypatch, tmp_path, file: str, text: str) -> None:
    (tmp_path / "zoe").mkdir()
    for name in ("lookups.txt", "code.txt", "facts.txt"):
        (tmp_path / "zoe" / name).write_text(text if name == file else "")
    monkeypatch.setattr(tool_prompts, "WRITERS", tmp_path)
    with pytest.raises(ValueError, match="writers: "):
        tool_texts(("zoe",))


def test_look_ups_copy_what_the_prompt_has(composer: Composer) -> None:
    rng, counts = Random(1), Counter[str]()
    for _ in range(300):
        prompt, checks = draw_lookup(rng, composer)
        assert not re.search(r"\{\w\}", prompt), prompt
        counts[checks[0].partition("(")[0] if checks else ""] += 1
        for check in checks:
            if check.startswith(("tells", "of_kind")):
                call = ast.parse(check, mode="eval").body
                assert isinstance(call, ast.Call)
                values = [ast.literal_eval(each) for each in call.args[1:]]
                assert all(value in prompt or value in prompt.lower() for value in values), (prompt, check)
    assert min(counts["tells"], counts["of_kind"], counts[""]) > 20


def test_questions_about_worlds_have_the_check_of_their_path() -> None:
    rng = Random(1)
    drawn = [draw_question_of_task(rng) for _ in range(200)]
    assert Counter(len(checks) for _, checks in drawn)[0] > 20
    two_steps = next(checks for prompt, checks in drawn if len(re.findall(r" of the ", prompt)) == 1 and checks)
    assert two_steps[0].count('"') == 6


def test_a_request_for_code_is_checked_if_it_shows_examples_and_asks_for_python(composer: Composer) -> None:
    rng, counts = Random(2), Counter[bool]()
    for _ in range(300):
        prompt, checks = draw_code(rng, composer)
        assert checks in ((), (EXAMPLES,))
        counts[bool(checks)] += 1
        if checks and len(prompt.split()) < 300:
            assert re.search(r"\d|True|False|Input|[\"'\[]", prompt), prompt
    assert min(counts.values()) > 75


def test_called_writes_a_valid_call() -> None:
    expression = called("tells", 'a "b" \\ ü', "c")
    call = ast.parse(expression, mode="eval").body
    assert isinstance(call, ast.Call)
    assert [ast.literal_eval(each) for each in call.args[1:]] == ['a "b" \\ ü', "c"]


def test_a_program_that_could_not_use_a_tool_has_an_even_verdict() -> None:
    shares = replace(
        CheckedShares(), nothing=0.0, templates=0.0, numeric=0.0, toolless=0.0, lookups=0.6, code=0.4, failing=1.0
    )
    rng = Random(3)
    drawn = [drawn_example(rng, mode=Mode.PAIRWISE, shares=shares) for _ in range(300)]
    failed = [one for one in drawn if one.noise in FAILURES]
    assert len(failed) > 150
    assert 0.35 < sum(one.label == "A" for one in failed) / len(failed) < 0.65
    assert FAILURES[0] in {judgment(one, whole=True)[1].text.strip().removesuffix("```").strip() for one in failed}


def test_new_whole_texts_replace_the_rarest_pieces() -> None:
    texts = [f"word{number} number and other words of a text" for number in range(300)]
    old, stale = frozen_texts()[:-4], "a text that is no longer used"
    tokenizer = train_copying_tokenizer(texts, vocab_size=len(old) + 600, whole=(*old, stale))
    num_tokens = tokenizer.get_vocab_size()
    renewed, changed = with_whole(tokenizer, frozen_texts())
    assert len(changed) == 4
    assert renewed.get_vocab_size() == num_tokens
    for text in (*frozen_texts(), "number"):
        assert len(renewed.encode(text, add_special_tokens=False).ids) == 1, text
    before, after = tokenizer.get_vocab(), renewed.get_vocab()
    assert {after[text] for text in frozen_texts()[-4:]} == set(changed)
    assert {text: token for text, token in before.items() if token not in changed} == {
        text: token for text, token in after.items() if token not in changed
    }
    for text in ("Größe 漢字 🙂\t\r\n", " word3 other", stale):
        assert renewed.decode(renewed.encode(text).ids) == text
    assert with_whole(renewed, frozen_texts())[1] == []


def test_the_new_text_of_a_function_keeps_its_token() -> None:
    old, new = "def words(r):\n    return 1\n", "def words(r):\n    return 2\n"
    tokenizer = train_copying_tokenizer(["some words of a text"], vocab_size=400, whole=(old, "other"))
    renewed, changed = with_whole(tokenizer, (new, "other"))
    assert changed == []
    assert renewed.token_to_id(new) == tokenizer.token_to_id(old)


def test_training_that_starts_from_the_bundled_judge_has_all_functions_as_tokens() -> None:
    tokenizer = Tokenizer.from_file(str(bundled_checkpoint() / "tokenizer.json"))
    renewed, _ = with_whole(tokenizer, frozen_texts())
    assert renewed.get_vocab_size() == tokenizer.get_vocab_size()
    assert [text for text in frozen_texts() if renewed.token_to_id(text) is None] == []
