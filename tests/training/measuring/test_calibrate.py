"""`tirjudge train calibrate`: the fitted temperature, and the command on a copy of the bundled judge."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

import pytest

from tests.command_line import run_command
from tirjudge.model import bundled_checkpoint
from tirjudge.profile import load_profile
from tirjudge_training.bundled.measuring.calibrate import fitted_temperature
from tirjudge_training.checkpoints import trained_profile


@pytest.mark.parametrize("temperature", [0.7, 1.0, 3.0])
def test_the_temperature_that_spoiled_the_probabilities_is_found(temperature: float) -> None:
    """Labels are drawn with known probabilities. The model reports them at a wrong temperature."""
    rng, items = Random(1), []
    for _ in range(6000):
        known = rng.uniform(0.05, 0.95)
        right = int(rng.random() > known)
        weights = [chance**temperature for chance in (known, 1 - known)]
        items.append(([weight / sum(weights) for weight in weights], right))
    fitted = fitted_temperature(items)
    assert fitted.temperature == pytest.approx(temperature, rel=0.08)
    assert fitted.loss_after <= fitted.loss_before


def test_a_temperature_needs_probabilities() -> None:
    with pytest.raises(ValueError, match="nothing to fit"):
        fitted_temperature([])


def test_the_command_writes_the_temperature_and_keeps_the_rest(tmp_path: Path) -> None:
    checkpoint = shutil.copytree(bundled_checkpoint(), tmp_path / "judge")
    before = load_profile(checkpoint)
    done = run_command("train", "calibrate", checkpoint, "--items", "20", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["num_items"] <= 20
    after = load_profile(checkpoint)
    assert after.label_temperature == result["temperature"]
    assert after.model_copy(update={"label_temperature": before.label_temperature}) == before
    assert trained_profile(checkpoint).label_temperature == 1.0


def test_a_folder_that_is_not_a_checkpoint_is_named(tmp_path: Path) -> None:
    done = run_command("train", "calibrate", tmp_path)
    assert done.returncode == 2
    assert str(tmp_path) in done.stderr
