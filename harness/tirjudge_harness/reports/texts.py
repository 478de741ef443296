"""Load the prompts and responses of a run from its data, because the folder of a run does not contain them. Folders of evals
do."""

from __future__ import annotations

from pathlib import Path

from tirjudge_harness.evals.run_folder import examples_of_rows
from tirjudge_harness.examples import Example
from tirjudge_harness.items import InputError
from tirjudge_harness.own_data.loading import load_own
from tirjudge_harness.reports.scored import ScoredRun
from tirjudge_harness.run import sha256_of
from tirjudge_harness.sources import load_examples


def _examples(run: ScoredRun, *, path: Path | None) -> list[Example]:
    manifest = run.manifest
    if manifest.data.columns is None or path is None:
        return load_examples(run.benchmark, data=path, parts=manifest.parts, on_bad=lambda row: None)
    return load_own(path, parts=manifest.parts, columns=manifest.data.columns).examples


def texts_of(run: ScoredRun, *, data: Path | None) -> dict[str, Example]:
    """Return the examples of a run, by id. Empty for a run under an attack, because attacked texts are not stored.

    Args:
        run: the run.
        data: file or folder of the benchmark's rows. None: the data in the run's manifest.

    Raises:
        InputError: the rows cannot be read, or differ from the rows of the run.
    """
    if run.manifest.attack is not None:
        return {}
    if run.manifest.data.eval is not None:
        return {one.outline.id: one for one in examples_of_rows(run.path, [one.outline for one in run.examples])}
    path = data or (None if run.manifest.data.path is None else Path(run.manifest.data.path))
    wanted = {one.outline.id for one in run.examples}
    if path is not None and not path.exists():
        where = "here" if path.is_absolute() else "in this folder"
        raise InputError(
            f"{path}: the rows of {run.path} are not {where}; give --data PATH, or --no-texts to leave prompts and responses "
            "out"
        )
    try:
        examples = _examples(run, path=path)
    except InputError as error:
        raise InputError(f"{error}; give --data PATH, or --no-texts to leave prompts and responses out") from error
    found = [one for one in examples if one.outline.id in wanted]
    whole = run.manifest.shard is None
    if len(found) < len(wanted) or (whole and sha256_of(found) != run.manifest.data.sha256):
        raise InputError(
            f"{path or run.benchmark.name}: rows differ from the rows of {run.path}; give the rows of the run as --data, "
            "or --no-texts"
        )
    return {one.outline.id: one for one in found}
