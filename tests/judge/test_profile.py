"""`judge.json`: its fields, older field names, and one-line errors for unsupported files."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tirjudge.errors import CheckpointError
from tirjudge.formats import format_named
from tirjudge.formats.tirjudge_1 import FORMAT
from tirjudge.model import bundled_checkpoint, fingerprint
from tirjudge.profile import (
    LOOP_VERSION,
    CheckpointFile,
    Lineage,
    Profile,
    load_profile,
    read_checkpoint_file,
    tokenizer_sha256,
)

TRAINED = {"name": "j", "loop_version": LOOP_VERSION, "prompts_sha256": FORMAT.sha256}


def folder(path: Path, content: dict[str, Any] | str, *, tokenizer: str | None = None) -> Path:
    (path / "judge.json").write_text(content if isinstance(content, str) else json.dumps(content))
    if tokenizer is not None:
        (path / "tokenizer.json").write_text(tokenizer)
    return path


def test_the_bundled_judge_loads() -> None:
    file = read_checkpoint_file(bundled_checkpoint())
    assert (file.name, file.lineage, file.metrics) == ("tirjudge-tiny", None, None)
    assert file.format_sha256 == format_named(file.format).sha256
    assert load_profile(bundled_checkpoint()) == file.profile


def test_a_folder_without_the_file_has_the_defaults(tmp_path: Path) -> None:
    assert load_profile(tmp_path) == Profile(name=tmp_path.name)


def test_lineage_and_metrics_are_read_and_are_not_part_of_the_profile(tmp_path: Path) -> None:
    lineage = Lineage(parent="ab" * 32, run_id="zero-1", stage="rl-1", weights_version=40, data_sha256="cd" * 32)
    file = CheckpointFile(**TRAINED, lineage=lineage, metrics={"val/acc": 0.91, "val/n": 600})
    path = folder(tmp_path, file.model_dump_json(exclude_none=True))
    assert read_checkpoint_file(path) == file
    assert load_profile(path) == Profile(**TRAINED)


@pytest.mark.parametrize("null", [{}, {"format": None, "format_sha256": None}])
def test_older_field_names_count_if_the_new_ones_are_missing_or_null(tmp_path: Path, null: dict[str, None]) -> None:
    profile = load_profile(folder(tmp_path, TRAINED | null))
    assert (profile.format, profile.format_sha256) == ("tirjudge/1", FORMAT.sha256)
    with pytest.raises(CheckpointError, match="training prompts differ"):
        load_profile(folder(tmp_path, TRAINED | null | {"prompts_sha256": "0" * 64}))


@pytest.mark.parametrize(
    ("content", "format"),
    [
        ({"name": "j"}, None),
        ({"name": "j", "loop_version": 1}, "tirjudge/1"),
        ({"name": "j", "prompts_sha256": FORMAT.sha256}, "tirjudge/1"),
        ({"name": "j", "format_sha256": FORMAT.sha256}, "tirjudge/1"),
        ({"name": "j", "lineage": {"stage": "rl-1"}}, "tirjudge/1"),
        ({"name": "j", "lineage": {"stage": "rl-1"}, "format": "tirjudge/2"}, "tirjudge/2"),
        ({"name": "j", "format": "tirjudge/2"}, "tirjudge/2"),
    ],
)
def test_a_checkpoint_that_was_trained_without_a_named_format_has_the_first_one(
    tmp_path: Path, content: dict[str, Any], format: str | None
) -> None:
    assert load_profile(folder(tmp_path, content)).format == format


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "Invalid JSON: EOF while parsing a value at line 1 column 0"),
        ('{"name": "j", "context_tok', "Invalid JSON: EOF while parsing a string at line 1 column 26"),
        ("[]", "Input should be an object"),
        (TRAINED | {"context_tokens": "many"}, "context_tokens: Input should be a valid integer"),
        (TRAINED | {"colour": "red"}, "colour: Extra inputs are not permitted"),
        (TRAINED | {"lineage": {"stage": 3}}, "lineage.stage: Input should be a valid string"),
        (TRAINED | {"loop_version": 7}, f"trained for loop version 7, but this release supports {LOOP_VERSION}"),
        (TRAINED | {"prompts_sha256": "0" * 64}, "its training prompts differ from those of this release"),
    ],
)
def test_an_unsupported_judge_json_is_rejected_in_one_line(tmp_path: Path, content: Any, message: str) -> None:
    path = folder(tmp_path, content)
    with pytest.raises(CheckpointError) as rejected:
        load_profile(path)
    assert str(rejected.value).startswith(f"{path / 'judge.json'}: {message}")
    assert "\n" not in str(rejected.value)


def test_a_binary_judge_json_is_rejected_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "judge.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CheckpointError, match=r"^[^\n]+judge.json: [^\n]+$"):
        load_profile(tmp_path)


def test_a_tokenizer_other_than_that_of_training_is_rejected(tmp_path: Path) -> None:
    own = '{"model": {"vocab": {"a": 0}}}'
    path = folder(tmp_path, TRAINED, tokenizer=own)
    recorded = TRAINED | {"tokenizer_sha256": tokenizer_sha256(path / "tokenizer.json")}
    assert load_profile(folder(path, recorded)).name == "j"
    folder(path, recorded, tokenizer='{"model": {"vocab": {"a": 1}}}')
    with pytest.raises(
        CheckpointError, match=r"tokenizer.json: tokenizer [0-9a-f]{12} differs from the tokenizer of the"
    ):
        load_profile(path)


def test_the_tokenizer_hash_ignores_layout_padding_and_truncation(tmp_path: Path) -> None:
    one, other, third = (tmp_path / name for name in ("1.json", "2.json", "3.json"))
    one.write_text('{"padding": null, "truncation": null, "model": {"a": 0, "b": 1}}')
    other.write_text('{\n  "model": {"b": 1, "a": 0},\n  "padding": {"length": 8}}')
    third.write_text('{"model": {"a": 1, "b": 0}}')
    assert tokenizer_sha256(one) == tokenizer_sha256(other) != tokenizer_sha256(third)


def test_the_profile_of_a_remote_model_needs_no_tokenizer(tmp_path: Path) -> None:
    assert load_profile(folder(tmp_path, TRAINED | {"tokenizer_sha256": "0" * 64})).name == "j"


def test_a_metric_that_is_nan_is_rejected() -> None:
    with pytest.raises(ValidationError):
        CheckpointFile(metrics={"val/acc": float("nan")})


def test_new_measurements_do_not_change_the_fingerprint(tmp_path: Path) -> None:
    folder = shutil.copytree(bundled_checkpoint(), tmp_path / "judge")
    (folder / "scores.json").write_text("[]")
    (folder / "README.md").write_text("Better than ever.")
    assert fingerprint(folder) == fingerprint(bundled_checkpoint())
    (folder / "generation_config.json").write_text("{}")
    assert fingerprint(folder) != fingerprint(bundled_checkpoint())


FIRST_GENERATION = {
    "name": "tirjudge-tiny",
    "context_tokens": 3072,
    "rollout_tokens": 640,
    "observation_tokens": 320,
    "prompt_chars": 1200,
    "response_chars": 64,
    "all_responses_chars": 416,
    "group_size": 8,
    "vote_temperature": 1.0,
    "loop_version": 1,
    "prompts_sha256": "678ea0348cb1c0471d261bb318391ee630874f19befa2d48b19afa44b6bd9c3e",
    "tokenizer_sha256": "68dc4ac9b909ddb6a83484edb0002e51b676f12eb50bae6807865e5c83c5156c",
}
"""judge.json of the bundled judge's first generation, in which records exist."""


def test_the_hash_of_existing_records_does_not_change() -> None:
    def sha256(profile: Profile) -> str:
        return hashlib.sha256(json.dumps(profile.as_first_written(), sort_keys=True).encode()).hexdigest()

    assert (
        sha256(Profile.model_validate(FIRST_GENERATION))
        == "30a2cb75c1e9be0d4287e199467fa298ba5a23c91def40b9bb7ab54194feb691"
    )
    untrained = "afbc9f79509dff5acaea2b85ac10f99496bc62743f1c665cd553822a3751baa4"
    assert sha256(Profile()) == sha256(Profile(chat_template_kwargs={})) == untrained
    assert sha256(Profile(chat_template_kwargs={"enable_thinking": False})) != untrained


def test_older_files_of_trained_judges_mean_no_options(tmp_path: Path) -> None:
    assert load_profile(folder(tmp_path, TRAINED)).chat_template_kwargs == {}
    options = {"enable_thinking": True}
    assert load_profile(folder(tmp_path, TRAINED | {"chat_template_kwargs": options})).chat_template_kwargs == options
    assert load_profile(folder(tmp_path, {"name": "j"})).chat_template_kwargs is None


def test_options_that_the_judge_sets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"chat_template_kwargs: .*messages: set by the judge"):
        load_profile(folder(tmp_path, {"chat_template_kwargs": {"messages": []}}))
