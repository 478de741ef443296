"""`tirjudge train average`: the mean of the weights of checkpoints that were trained one from another.

The mean of weights that lie near each other often judges better than each of them.
Source: Wortsman et al., "Model soups" (arXiv 2203.05482), uniform soup.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tirjudge.errors import CheckpointError, TirjudgeError
from tirjudge.model import MEASURED
from tirjudge.profile import read_checkpoint_file
from tirjudge_training.checkpoints import UNCALIBRATED, replacing, weights_sha256, write_checkpoint_file

EQUAL = ("config.json", "tokenizer.json")
"""Files that must be equal in all checkpoints."""

OF_ONE = {*MEASURED, "README.md"} - {"training.json"}
"""Files that say how good one checkpoint is."""


def average_checkpoints(checkpoints: Sequence[Path], *, out: Path) -> None:
    """Write a checkpoint with the mean of the weights of some checkpoints, computed in float32 and stored in the data type of
    the last one. Its `training.json` has the stages of all of them. All else is that of the last one, without its calibration
    and measurements.

    Args:
        checkpoints: two or more checkpoint folders of the same shape, with the same tokenizer.
        out: checkpoint folder; an existing one is replaced.

    Raises:
        CheckpointError: there are fewer than two checkpoints, one cannot be read, they differ in more than their weights, or
            `out` cannot be written.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file, save_file

    if len(checkpoints) < 2:
        raise CheckpointError(f"{len(checkpoints)} checkpoint given; a mean needs two or more")
    *others, last = checkpoints
    file = read_checkpoint_file(last)
    for other in others:
        read_checkpoint_file(other)
        for name in EQUAL:
            if (other / name).read_bytes() != (last / name).read_bytes():
                raise CheckpointError(
                    f"{other / name} differs from {last / name}; only weights of one shape have a mean"
                )
    weights = []
    for checkpoint in checkpoints:
        try:
            weights.append(load_file(checkpoint / "model.safetensors"))
        except SafetensorError as error:
            raise CheckpointError(f"{checkpoint / 'model.safetensors'} cannot be read: {error}") from error
        if weights[-1].keys() != weights[0].keys():
            raise CheckpointError(f"{checkpoint} and {checkpoints[0]} have weights with different names")
    mean = {
        name: torch.stack([each[name].float() for each in weights]).mean(dim=0).to(tensor.dtype)
        for name, tensor in weights[-1].items()
    }
    records = [json.loads((each / "training.json").read_text(encoding="utf-8")) for each in checkpoints]
    stages: list[object] = []
    for record in records:
        stages += [stage for stage in record["stages"] if stage not in stages]
    training = records[-1] | {"stages": stages, "averaged": [weights_sha256(checkpoint) for checkpoint in checkpoints]}
    with replacing(out) as folder:
        for path in last.iterdir():
            if path.is_file() and path.name not in OF_ONE:
                shutil.copyfile(path, folder / path.name)
        save_file(mean, folder / "model.safetensors", metadata={"format": "pt"})
        write_checkpoint_file(folder, profile=file.profile.model_copy(update=UNCALIBRATED), lineage=file.lineage)
        (folder / "training.json").write_text(json.dumps(training, indent=1) + "\n", encoding="utf-8")


def average(
    checkpoints: Annotated[list[Path], typer.Argument(help="Checkpoint folders, two or more.")],
    out: Annotated[Path, typer.Option(help="Checkpoint folder with the mean; replaced if it exists.")],
) -> None:
    """Average the weights of checkpoints, such as those of two stages. All else is that of the last one.

    Examples:
        tirjudge train average checkpoints/one checkpoints/two --out checkpoints/mean
    """
    try:
        average_checkpoints(checkpoints, out=out)
    except (ValueError, TirjudgeError, OSError) as error:
        typer.echo(" ".join(f"tirjudge train average: {error}".split()), err=True)
        raise typer.Exit(2 if isinstance(error, ValueError) else 1) from None
    print(
        f"{out} has the mean of {len(checkpoints)} checkpoints; fit its probabilities: tirjudge train calibrate {out}"
    )
