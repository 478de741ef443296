"""Checkpoints: written ones can be served and trained from, and an incomplete one is never visible."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.numpy import load_file
from transformers.utils import logging as transformers_logging

from tirjudge.chat_template import CHATML, ChatTemplate
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.engines.tokenization import LocalTokenizer
from tirjudge.errors import CheckpointError
from tirjudge.model import bundled_checkpoint
from tirjudge.profile import Lineage, Profile, load_profile, read_checkpoint_file
from tirjudge.types import Sampling
from tirjudge_training.checkpoints import (
    export_checkpoint,
    load_checkpoint,
    load_tokenizer,
    replacing,
    trained_profile,
    weights_sha256,
    write_checkpoint_file,
)
from tirjudge_training.policies import EmbeddedPolicy
from tirjudge_training.sampling import Student

torch.set_num_threads(1)
transformers_logging.disable_progress_bar()

LINEAGE = Lineage(run_id="zero-7", stage="rl-1", weights_version=40, git_commit="abc1234")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "best"
    model, tokenizer, profile = load_checkpoint(bundled_checkpoint())
    parent = weights_sha256(bundled_checkpoint())
    lineage = LINEAGE.model_copy(update={"parent": parent})
    export_checkpoint(model, tokenizer, out=out, profile=profile, lineage=lineage, metrics={"val/acc": 0.9125})
    return out


def test_folder_has_the_files_for_transformers_vllm_and_the_server(exported: Path) -> None:
    assert {path.name for path in exported.iterdir()} == {
        *("config.json", "generation_config.json", "model.safetensors"),
        *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "judge.json", "README.md"),
    }
    assert [path.name for path in exported.parent.iterdir()] == ["best"]
    file = read_checkpoint_file(exported)
    assert file.lineage == LINEAGE.model_copy(update={"parent": weights_sha256(bundled_checkpoint())})
    assert file.metrics == {"val/acc": 0.9125}
    served, ours = load_profile(exported), load_profile(bundled_checkpoint())
    assert served.model_copy(update={"tokenizer_sha256": ours.tokenizer_sha256}) == ours


async def test_exported_checkpoint_generates_the_same_tokens(exported: Path) -> None:
    completions = []
    for folder in (bundled_checkpoint(), exported):
        engine = EmbeddedEngine.load(folder)
        try:
            ids = await engine.tokenizer.encode_prompt("Which is longer?")
            completions.append(await engine.generate(ids, sampling=Sampling(max_tokens=20), session="s"))
        finally:
            engine.close()
    assert completions[0].token_ids == completions[1].token_ids


@pytest.mark.slow
def test_exported_checkpoint_can_be_loaded_for_training(exported: Path) -> None:
    model, tokenizer, profile = load_checkpoint(exported)
    assert profile == load_profile(exported)
    assert next(model.parameters()).dtype is torch.float32
    assert tokenizer.eos_token_id == model.config.eos_token_id
    weights = load_file(exported / "model.safetensors")
    assert torch.equal(model.state_dict()["model.norm.weight"], torch.from_numpy(weights["model.norm.weight"]))


@pytest.mark.parametrize(
    "text", ["Which is longer?", " a\n\nb 12345 ```python\nx=1\n```\n", "<|im_end|> and <|im_start|>", "数字 🙂", ""]
)
async def test_chat_template_equals_the_encoding_of_the_engine(exported: Path, text: str) -> None:
    by_engine = await LocalTokenizer.load(exported).encode_prompt(text)
    for folder in (exported, bundled_checkpoint()):
        tokenizer = load_tokenizer(folder)
        messages = [{"role": "user", "content": text}]
        assert tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False) == ChatTemplate(
            CHATML
        ).render_prompt(text)
        by_template = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        assert by_template == by_engine


def test_card_has_only_recorded_facts_and_metrics(exported: Path, tmp_path: Path) -> None:
    card = (exported / "README.md").read_text()
    assert "| val/acc | 0.9125 |" in card
    trained = json.loads((bundled_checkpoint() / "training.json").read_text())["stages"][-1]["trained"]
    assert f"| parameters | {trained['num_parameters']:,} |" in card
    assert f"| weights (SHA-256) | {weights_sha256(exported)} |" in card
    assert "| stage | rl-1 |" in card
    assert "data" not in card  # the lineage has no hash of data
    model, tokenizer, profile = load_checkpoint(exported)
    export_checkpoint(model, tokenizer, out=tmp_path / "bare", profile=profile)
    assert "Nothing was measured." in (tmp_path / "bare" / "README.md").read_text()


def test_a_trained_checkpoint_names_its_format(exported: Path, tmp_path: Path) -> None:
    """A model without a format is trained with the default format, and is then served with it."""
    for file in exported.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "judge.json").unlink()
    write_checkpoint_file(tmp_path, profile=Profile(name="untrained"), lineage=Lineage(stage="rl-1"))
    assert load_profile(tmp_path).format == "tirjudge/2"
    assert load_profile(exported).format == load_profile(bundled_checkpoint()).format


def test_parent_is_identified_by_the_hash_of_its_weights(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"abc")
    assert weights_sha256(tmp_path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # of "abc"


def test_non_finite_metric_leaves_the_last_checkpoint(exported: Path) -> None:
    model, tokenizer, profile = load_checkpoint(exported)
    before = {path.name: path.read_bytes() for path in exported.iterdir()}
    with pytest.raises(CheckpointError, match="nan"):
        export_checkpoint(model, tokenizer, out=exported, profile=profile, metrics={"val/acc": float("nan")})
    assert {path.name: path.read_bytes() for path in exported.iterdir()} == before
    assert [path.name for path in exported.parent.iterdir()] == ["best"]


def test_a_server_that_runs_as_another_user_can_read_a_checkpoint(tmp_path: Path) -> None:
    with replacing(tmp_path / "out") as folder:
        (folder / "model.safetensors").touch(mode=0o600)
        (folder / "parts").mkdir()
        (folder / "parts" / "optimizer.pt").touch(mode=0o600)
    (tmp_path / "usual").touch()
    for name in ("model.safetensors", "parts/optimizer.pt"):
        assert (tmp_path / "out" / name).stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert (tmp_path / "out" / "parts").is_dir()


def test_checkpoint_is_replaced_atomically(tmp_path: Path) -> None:
    out = tmp_path / "best"
    for number in ("1", "2"):
        with replacing(out) as folder:
            (folder / number).write_text(number)
            assert not (out / number).exists()
    assert [path.name for path in out.iterdir()] == ["2"]
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_failed_writer_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "best"
    with replacing(out) as folder:
        (folder / "good").touch()
    with pytest.raises(CheckpointError, match="the previous checkpoint is unchanged"), replacing(out) as folder:
        (folder / "nowhere" / "bad").touch()
    assert [path.name for path in out.iterdir()] == ["good"]
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


KILLED = """
import os, sys
from pathlib import Path
from tirjudge_training.checkpoints import replacing

rename = Path.rename
Path.rename = lambda path, target: (rename(path, target), os._exit(9))
with replacing(Path(sys.argv[1])) as folder:
    (folder / "new").touch()
"""
"""Exits right after the old folder was moved aside."""


@pytest.mark.slow
def test_checkpoint_survives_a_writer_killed_between_its_two_renames(tmp_path: Path) -> None:
    out = tmp_path / "best"
    with replacing(out) as folder:
        (folder / "good").touch()
    assert subprocess.run([sys.executable, "-c", KILLED, str(out)], timeout=60).returncode == 9
    assert not out.exists()
    with pytest.raises(CheckpointError, match="transformers cannot load it"):
        load_checkpoint(out)  # restores the folder, which is not a valid checkpoint
    assert [path.name for path in out.iterdir()] == ["good"]
    with replacing(out) as folder:
        (folder / "newer").touch()
    assert [path.name for path in out.iterdir()] == ["newer"]
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def can_mount() -> bool:
    return subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode == 0


FILLING = """
import gc, sys
gc.disable()  # importing torch and transformers makes millions of objects that stay
from pathlib import Path
from tirjudge.model import bundled_checkpoint
from tirjudge.profile import read_checkpoint_file
from tirjudge_training.checkpoints import export_checkpoint, load_checkpoint, weights_sha256

disk = Path(sys.argv[1])
model, tokenizer, profile = load_checkpoint(bundled_checkpoint())
try:
    for number in range(9):
        export_checkpoint(model, tokenizer, out=disk / "best", profile=profile, metrics={"number": number})
        last = weights_sha256(disk / "best")
        (disk / f"ballast-{number}").write_bytes(b"x" * int(sys.argv[2]))
except ValueError as error:
    print(error)
(disk / "ballast-0").unlink()
load_checkpoint(disk / "best")
print(weights_sha256(disk / "best") == last, read_checkpoint_file(disk / "best").metrics["number"] == number - 1)
print([path.name for path in disk.glob("*best*")])
"""


@pytest.mark.slow
@pytest.mark.skipif(not can_mount(), reason="user namespaces are not available")
def test_full_disk_is_reported_in_one_line_and_the_last_checkpoint_is_unchanged(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "filling.py").write_text(FILLING)
    weights = (bundled_checkpoint() / "model.safetensors").stat().st_size  # exported in float32, it has twice the size
    mount = f"mount -t tmpfs -o size={5 * weights} none {disk}"
    command = f"{mount} && exec {sys.executable} {tmp_path / 'filling.py'} {disk} {3 * weights // 10}"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    message, kept, left = done.stdout.splitlines()
    assert message == f"{disk / 'best'}: No space left on device; free some space; the previous checkpoint is unchanged"
    assert kept == "True True"
    assert left == "['best']"


def test_judge_json_of_a_different_tokenizer_is_rejected(exported: Path, tmp_path: Path) -> None:
    for path in exported.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    tokenizer["model"]["merges"].pop()
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(CheckpointError, match="differs from the tokenizer of the training"):
        load_checkpoint(tmp_path)


def test_truncated_checkpoint_is_a_one_line_error(exported: Path, tmp_path: Path) -> None:
    for path in exported.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes()[: 1000 if path.name == "model.safetensors" else None])
    with pytest.raises(CheckpointError, match=r"^[^\n]+transformers cannot load it[^\n]+$"):
        load_checkpoint(tmp_path)


THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}"
    "<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}"
)


@pytest.mark.slow
async def test_training_asks_and_records_the_options_of_the_start_checkpoint(tmp_path: Path) -> None:
    start, out = tmp_path / "start", tmp_path / "out"
    shutil.copytree(bundled_checkpoint(), start)
    (start / "chat_template.jinja").write_text(THINKING)
    for given, used in ((None, {"enable_thinking": False}), ({"enable_thinking": True}, {"enable_thinking": True})):
        (start / "judge.json").write_text(json.dumps({"name": "j", "chat_template_kwargs": given}))
        student = Student.load(start, tools=())
        expected = LocalTokenizer.load(start, chat_template_kwargs=used)
        assert await student.judge.engine.tokenizer.encode_prompt("?") == await expected.encode_prompt("?")
        async with EmbeddedPolicy(start, sandbox=None) as policy:
            assert await policy.judge.engine.tokenizer.encode_prompt("?") == await expected.encode_prompt("?")
            assert policy.judge.profile.chat_template_kwargs == used
        model, tokenizer, _ = load_checkpoint(start)
        export_checkpoint(model, tokenizer, out=out, profile=trained_profile(start))
        written = read_checkpoint_file(out)
        assert (written.chat_template_kwargs, written.was_trained_on_format) == (used, True)
        assert (out / "chat_template.jinja").read_text() == THINKING
        other = {"enable_thinking": not used["enable_thinking"]}
        with pytest.raises(CheckpointError, match="was trained with"):
            written.profile.rendered_with(other)


def test_a_folder_without_a_template_is_trained_in_chatml(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(bundled_checkpoint() / name, tmp_path / name)
        assert load_tokenizer(tmp_path).chat_template == CHATML
