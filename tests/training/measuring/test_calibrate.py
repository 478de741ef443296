"""`tirjudge train calibrate`: the fitted calibration, and the command on a copy of the bundled judge."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from random import Random

import pytest
from tokenizers import Tokenizer

from tests.command_line import run_command
from tirjudge.errors import CheckpointError
from tirjudge.labels import mixed_with_even, tempered
from tirjudge.model import bundled_checkpoint
from tirjudge.profile import load_profile
from tirjudge_training.bundled.build import renew_functions
from tirjudge_training.bundled.checked import frozen_texts
from tirjudge_training.bundled.measuring.calibrate import fitted_calibration
from tirjudge_training.bundled.measuring.judging import RawJudgment
from tirjudge_training.bundled.tokenizer import with_template, with_whole
from tirjudge_training.checkpoints import UNCALIBRATED, save_tokenizer, trained_profile, write_checkpoint_file


@pytest.mark.parametrize(("temperature", "fitted_to"), [(0.7, 1.0), (1.0, 1.0), (3.0, 3.0)])
def test_the_temperature_that_spoiled_the_probabilities_is_found(temperature: float, fitted_to: float) -> None:
    """Labels are drawn with known probabilities. The model reports them at a wrong temperature. A calibration never makes a
    judge more confident."""
    rng, items = Random(1), []
    for _ in range(3000):
        known = rng.uniform(0.05, 0.95)
        right = int(rng.random() > known)
        weights = [chance**temperature for chance in (known, 1 - known)]
        chances = tuple(weight / sum(weights) for weight in weights)
        items.append(RawJudgment(chances=chances, right=right, program_probability=None, is_checked=False))
    fitted = fitted_calibration(items)
    assert fitted.label_temperature == pytest.approx(fitted_to, rel=0.1)
    assert fitted.loss_after <= fitted.loss_before or temperature <= 1  # unchecked verdicts lose confidence, too
    assert (fitted.share_checked, fitted.accuracy_checked) == (0, None)


@pytest.mark.parametrize("weight", [0.5, 1.0])
def test_verdicts_of_improbable_programs_lose_confidence_and_are_not_checked(weight: float) -> None:
    """A program is right with its probability to the power `weight`; otherwise the verdict is random."""
    rng, items = Random(2), []
    for _ in range(3000):
        probability = rng.random()
        is_right = rng.random() < probability**weight or rng.random() < 0.5
        items.append(
            RawJudgment(
                chances=(0.99, 0.01), right=0 if is_right else 1, program_probability=probability, is_checked=True
            )
        )
    fitted = fitted_calibration(items)
    assert fitted.program_weight == pytest.approx(weight, abs=0.25)
    assert fitted.loss_after < fitted.loss_before
    # From t on, the mean weight is (1 + t) / 2, or a little more, so 97 % are right from a threshold near 0.9 on.
    assert 0.7 < fitted.checked_from < 0.97
    assert fitted.accuracy_checked is not None
    assert fitted.accuracy_checked >= 0.965
    assert 0.02 < fitted.share_checked < 0.6


def test_an_improbable_program_lowers_the_confidence_though_all_items_are_right() -> None:
    items = [
        RawJudgment(chances=(0.99, 0.01), right=0, program_probability=probability, is_checked=True)
        for probability in (0.4, 0.9) * 20
    ]
    fitted = fitted_calibration(items)
    assert fitted.program_weight == 0.125
    assert fitted.loss_after > fitted.loss_before
    assert fitted.checked_from == pytest.approx(0.4**0.125, abs=0.001)


def test_the_loss_is_that_of_the_labels_that_the_judge_would_report() -> None:
    logprobs = {"A": math.log(0.2), "B": math.log(0.7)}
    item = RawJudgment(chances=(0.2, 0.7), right=0, program_probability=0.25, is_checked=False)
    fitted = fitted_calibration([item])
    assert fitted.loss_before == pytest.approx(-logprobs["A"])
    weight = fitted.unchecked_weight * 0.25**fitted.program_weight
    reported = mixed_with_even(tempered(logprobs, temperature=fitted.label_temperature), weight=weight)
    assert fitted.loss_after == pytest.approx(-reported["A"])
    assert fitted.label_temperature > 1
    assert fitted.program_weight > 0


@pytest.mark.parametrize(("accuracy", "fitted_to"), [(0.5, 0.1), (0.58, 0.4), (0.8, 0.4)])
def test_verdicts_that_no_check_implies_have_the_weight_that_they_are_worth(accuracy: float, fitted_to: float) -> None:
    """The judge gives 0.7 to what is right with another probability. A weight is at most 0.4."""
    items = [
        RawJudgment(chances=(0.7, 0.3), right=int(place >= 100 * accuracy), program_probability=1.0, is_checked=False)
        for place in range(100)
    ]
    items += [RawJudgment(chances=(0.99, 0.01), right=0, program_probability=1.0, is_checked=True)] * 100
    fitted = fitted_calibration(items)
    assert fitted.unchecked_weight == fitted_to
    assert fitted.share_checked == 0.5


def test_a_calibration_needs_probabilities() -> None:
    with pytest.raises(ValueError, match="nothing to fit"):
        fitted_calibration([])


@pytest.mark.slow
def test_the_command_writes_the_calibration_and_keeps_the_rest(tmp_path: Path) -> None:
    checkpoint = shutil.copytree(bundled_checkpoint(), tmp_path / "judge")
    before = load_profile(checkpoint)
    done = run_command("train", "calibrate", checkpoint, "--items", "20", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["num_items"] <= 20
    after = load_profile(checkpoint)
    assert {name: getattr(after, name) for name in UNCALIBRATED} == {name: result[name] for name in UNCALIBRATED}
    assert after.model_copy(update=UNCALIBRATED) == before.model_copy(update=UNCALIBRATED)
    assert {name: getattr(trained_profile(checkpoint), name) for name in UNCALIBRATED} == UNCALIBRATED


def with_every_function(tmp_path: Path) -> Path:
    """Return a copy of the bundled judge whose tokens have the functions of all checks, even of those it never learned."""
    checkpoint = shutil.copytree(bundled_checkpoint(), tmp_path / "judge")
    tokenizer, _ = with_whole(Tokenizer.from_file(str(checkpoint / "tokenizer.json")), frozen_texts())
    save_tokenizer(with_template(tokenizer), checkpoint)
    write_checkpoint_file(checkpoint, profile=load_profile(bundled_checkpoint()))
    return checkpoint


def test_programs_get_the_current_text_of_their_functions(tmp_path: Path) -> None:
    checkpoint = with_every_function(tmp_path)
    before, profile = (checkpoint / "tokenizer.json").read_text(), load_profile(checkpoint)
    tokenizer = json.loads(before)
    token = next(token for token in tokenizer["added_tokens"] if token["content"].startswith("def words("))
    token["content"] = "def words(r):\n    return 0\n"
    (checkpoint / "tokenizer.json").write_text(json.dumps(tokenizer))
    write_checkpoint_file(checkpoint, profile=profile)
    renew_functions(checkpoint)
    assert (checkpoint / "tokenizer.json").read_text() == before
    assert load_profile(checkpoint) == profile


@pytest.mark.parametrize("name", ["def words(", "import json"])
def test_a_judge_whose_tokens_lack_a_function_is_not_changed(tmp_path: Path, name: str) -> None:
    checkpoint = with_every_function(tmp_path)
    tokenizer = json.loads((checkpoint / "tokenizer.json").read_text())
    special = [token for token in tokenizer["added_tokens"] if token["special"]]
    kept = [token for token in tokenizer["added_tokens"] if not token["content"].startswith(name)]
    tokenizer["added_tokens"] = special if name == "import json" else kept
    (checkpoint / "tokenizer.json").write_text(json.dumps(tokenizer))
    write_checkpoint_file(checkpoint, profile=load_profile(bundled_checkpoint()))
    with pytest.raises(CheckpointError, match="train bundled --from" if name != "import json" else "no functions"):
        renew_functions(checkpoint)
    assert json.loads((checkpoint / "tokenizer.json").read_text()) == tokenizer


def test_a_folder_that_is_not_a_checkpoint_is_named(tmp_path: Path) -> None:
    done = run_command("train", "calibrate", tmp_path)
    assert done.returncode == 2
    assert str(tmp_path) in done.stderr
