"""Building a folder of items from rows: counts, reasons, determinism, resuming, and messages of the command."""

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests.training.data import rows
from tirjudge.types import Mode
from tirjudge_training.data.cli import app
from tirjudge_training.data.manifest import MixtureManifest, hash_of
from tirjudge_training.data.problems import AnsweredProblem, CandidateAnswer, read_problems, write_candidates
from tirjudge_training.data.quality import Reason
from tirjudge_training.items import TrainingItem, read_items

UNPAIRED = ("s1", "math", "dapo-bigmath", "webinstruct", "loong")
"""Sources whose answers must be sampled."""


def run(*arguments: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.output


def build(out: Path, *, local: Path, options: tuple[str | Path, ...] = (), code: int = 0) -> MixtureManifest:
    run("build", "--out", out, "--local", local, "--benchmarks", "none", "--scale", "0.01", *options, code=code)
    return MixtureManifest.model_validate_json((out / "manifest.json").read_bytes())


def all_items(out: Path) -> list[TrainingItem]:
    return [*read_items(out / "train.parquet"), *read_items(out / "validation.parquet")]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows for a hundredth of the mixture."""
    return rows.write_rows(tmp_path_factory.mktemp("rows"), count=80, but={"coderm": 30, "tulu3-if/prompts": 10})


@pytest.fixture(scope="module")
def built(local: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MixtureManifest]:
    out = tmp_path_factory.mktemp("built")
    return out, build(out, local=local)


@pytest.mark.slow
def test_labeled_sources_yield_the_counts_of_the_mixture(built: tuple[Path, MixtureManifest]) -> None:
    out, manifest = built
    counts = Counter((item.source, item.mode) for item in all_items(out))
    point, pair, list_ = Mode.POINTWISE, Mode.PAIRWISE, Mode.LISTWISE
    assert {key: counts[key] for key in sorted(counts)} == {
        ("coderm", list_): 5, ("coderm", pair): 10, ("coderm", point): 10,
        ("helpsteer3", pair): 20, ("helpsteer3", point): 20,
        ("saferlhf", pair): 5, ("saferlhf", point): 5,
        ("tulu3-if", pair): 15, ("tulu3-if", point): 15,
        ("ultrainteract", pair): 20, ("ultrainteract", point): 20,
    }  # fmt: skip
    assert manifest.sources["tulu3-if"].made == {point: 15, pair: 15, list_: 0}  # answers to prompts must be sampled
    assert manifest.sources["math"].rejected == {"no_candidates": 80}
    assert manifest.sources["helpsteer3"].rejected[Reason.UNCLEAR_PREFERENCE] > 0
    assert manifest.generators == {"Llama-3.1-8B-Instruct": counts["coderm", list_] + 20, "model-a": 30, "model-b": 30}


def test_five_percent_of_each_task_are_held_out_without_overlap(
    built: tuple[Path, MixtureManifest],
) -> None:
    out, manifest = built
    train, held_out = read_items(out / "train.parquet"), read_items(out / "validation.parquet")
    assert {item.task for item in held_out} == {"code", "helpfulness", "instructions", "safety"}
    assert len({item.id for item in train} | {item.id for item in held_out}) == len(train) + len(held_out) == 145
    assert not {str(item.prompt) for item in train} & {str(item.prompt) for item in held_out}
    assert manifest.files["train.parquet"].sha256 == hash_of(train)


def test_right_programs_pass_their_tests_and_wrong_programs_fail(built: tuple[Path, MixtureManifest]) -> None:
    items = [item for item in all_items(built[0]) if item.source == "coderm"]
    for item in items:
        sums = ["return a + b\n" in text or "return b + a  #" in text for text in item.responses]
        assert [index for index, is_right in enumerate(sums) if is_right] == [item.best]
    listwise = [item for item in items if item.mode is Mode.LISTWISE]
    assert all(4 <= len(set(item.responses)) == len(item.responses) <= 6 for item in listwise)
    assert len({len(item.responses) for item in listwise}) > 1


def test_positions_and_orders_vary(built: tuple[Path, MixtureManifest]) -> None:
    pairs = [item for item in all_items(built[0]) if item.mode is Mode.PAIRWISE]
    shown_first = Counter(item.order[0] == item.best for item in pairs)
    assert len(pairs) == 70
    assert min(shown_first.values()) > 15  # a fair coin gives fewer than 16 of 70 with probability 1e-6
    assert min(Counter(item.best for item in pairs).values()) > 15
    assert all(item.order == (0, 1) for item in all_items(built[0]) if item.mode is Mode.POINTWISE)


def test_equal_seeds_give_equal_files_and_different_seeds_give_different_files(
    built: tuple[Path, MixtureManifest], local: Path, tmp_path: Path
) -> None:
    names = ("--sources", "helpsteer3,saferlhf")
    first, second = (build(tmp_path / name, local=local, options=names) for name in "ab")
    assert first == second
    assert (tmp_path / "a" / "train.parquet").read_bytes() == (tmp_path / "b" / "train.parquet").read_bytes()
    third = build(tmp_path / "c", local=local, options=(*names, "--seed", "1"))
    assert third.files["train.parquet"].sha256 != first.files["train.parquet"].sha256
    assert third.files["train.parquet"].num_items == first.files["train.parquet"].num_items


def test_option_commercial_excludes_saferlhf_and_records_it(local: Path, tmp_path: Path) -> None:
    manifest = build(tmp_path, local=local, options=("--commercial", "--sources", "saferlhf,tulu3-if"))
    assert manifest.left_out == {"saferlhf": "non_commercial"}
    assert set(manifest.sources) == {"tulu3-if"}
    assert {item.source for item in all_items(tmp_path)} == {"tulu3-if"}


def test_option_only_restricts_the_tasks(local: Path, tmp_path: Path) -> None:
    build(tmp_path, local=local, options=("--only", "safety,helpfulness"))
    assert {item.task for item in all_items(tmp_path)} == {"safety", "helpfulness"}


def test_missing_column_is_reported_with_source_file_and_columns(tmp_path: Path) -> None:
    broken = [{key: value for key, value in row.items() if key != "response2"} for row in rows.helpsteer3(3)]
    file = rows.write_parquet(broken, tmp_path / "rows" / "helpsteer3.parquet")
    output = run(
        "build", "--out", tmp_path / "out", "--local", tmp_path / "rows", "--benchmarks", "none",
        "--sources", "helpsteer3", code=2,
    )  # fmt: skip
    assert (
        f"helpsteer3: {file}: column response2 is missing; "
        "the columns are domain, language, context, response1, overall_preference"
    ) in output
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--sources", "missing"), "source: unknown source 'missing'; the sources are helpsteer3"),
        (("--only", "poetry"), "only: unknown task 'poetry'"),
        (("--scale", "0"), "scale: expected a number greater than 0 and at most 1, got 0.0"),
        (("--benchmarks", "nonsense"), "benchmarks: unknown benchmark 'nonsense'; installed are alpacaeval-human, "),
        (("--candidates", "/nowhere.jsonl"), "/nowhere.jsonl: no such file"),
        (("--against", "/nowhere.txt"), "/nowhere.txt: no such file"),
        (("--sources", "math"), "no row yields an item: no_candidates 80"),
        (
            ("--benchmarks", "judgebench", "--benchmark-rows", "/nowhere"),
            "judgebench: no such file: /nowhere/judgebench",
        ),
    ],
)
def test_invalid_options_are_one_line_errors(options: tuple[str, ...], words: str, local: Path, tmp_path: Path) -> None:
    defaults = () if "--benchmarks" in options else ("--benchmarks", "none")
    output = run("build", "--out", tmp_path, "--local", local, *defaults, *options, code=2)
    assert words in output
    assert "Traceback" not in output


def test_files_with_invalid_content_are_errors(tmp_path: Path) -> None:
    (tmp_path / "saferlhf.parquet").write_text("no such thing")
    common = ("build", "--out", tmp_path / "out", "--local", tmp_path, "--benchmarks", "none", "--sources")
    assert "not Parquet" in run(*common, "saferlhf", code=2)
    (tmp_path / "helpsteer3.jsonl").write_text('{"context": "a"}\n{broken\n')
    assert "line 2: not JSON" in run(*common, "helpsteer3", code=2)
    assert "expected math.parquet or math.jsonl" in run(*common, "math", code=2)


def test_jsonl_and_folders_are_read_like_parquet(
    local: Path, tmp_path: Path, built: tuple[Path, MixtureManifest]
) -> None:
    lines = pq.read_table(local / "saferlhf.parquet").to_pylist()
    (tmp_path / "saferlhf").mkdir()
    (tmp_path / "saferlhf" / "one.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines[:50]))
    rows.write_parquet(lines[50:], tmp_path / "saferlhf" / "two.parquet")
    manifest = build(tmp_path / "out", local=tmp_path, options=("--sources", "saferlhf"))
    alone = build(tmp_path / "alone", local=local, options=("--sources", "saferlhf"))
    assert manifest.files == alone.files
    assert [place.split("/")[-1] for place in manifest.sources["saferlhf"].parts[0].places] == [
        "one.jsonl (50 rows)",
        "two.parquet (30 rows)",
    ]


def test_finished_sources_are_kept_and_changed_sources_are_built_again(local: Path, tmp_path: Path) -> None:
    mine = tmp_path / "rows"
    for name in ("helpsteer3", "saferlhf"):
        rows.write_parquet(rows.FILES[name](60), mine / f"{name}.parquet")
    options = ("--sources", "helpsteer3,saferlhf")
    first = build(tmp_path / "out", local=mine, options=options)
    parts = {name: tmp_path / "out" / "parts" / f"{name}.parquet" for name in ("helpsteer3", "saferlhf")}
    made_at = {name: path.stat().st_mtime_ns for name, path in parts.items()}
    # Simulate a run killed in the second source: its items exist, but not its record.
    (tmp_path / "out" / "manifest.json").unlink()
    (tmp_path / "out" / "parts" / "saferlhf.json").unlink()
    assert build(tmp_path / "out", local=mine, options=options) == first
    assert parts["helpsteer3"].stat().st_mtime_ns == made_at["helpsteer3"]
    assert parts["saferlhf"].stat().st_mtime_ns > made_at["saferlhf"]
    # If the rows of the first source change, it is built again.
    rows.write_parquet(rows.helpsteer3(70), mine / "helpsteer3.parquet")
    assert build(tmp_path / "out", local=mine, options=options).sources["helpsteer3"].num_rows == 70
    assert parts["helpsteer3"].stat().st_mtime_ns > made_at["helpsteer3"]


def test_prompts_of_benchmarks_are_excluded_and_reported(local: Path, tmp_path: Path) -> None:
    asked = rows.saferlhf(80)
    for row in asked[:3]:
        row["prompt"] = f"{row['prompt']} It looks at me with such sad eyes every morning."
    planted = [row["prompt"] for row in asked[:3]]
    rows.write_parquet(asked, tmp_path / "rows" / "saferlhf.parquet")
    (tmp_path / "held.txt").write_text("\n".join(["An unrelated line of text, quite unlike them.", *planted]))
    options = ("--sources", "saferlhf", "--scale", "0.15")
    clean = build(tmp_path / "clean", local=tmp_path / "rows", options=options)
    assert "contaminated" not in clean.sources["saferlhf"].rejected
    manifest = build(tmp_path / "out", local=tmp_path / "rows", options=(*options, "--against", tmp_path / "held.txt"))
    source = manifest.sources["saferlhf"]
    assert source.num_seen == 80
    assert (source.rejected[Reason.CONTAMINATED], source.contaminated_by) == (3, {"held": 3})
    assert manifest.benchmarks == {"held": 4}
    assert not {item.prompt for item in all_items(tmp_path / "out")} & set(planted)
    output = run("check", tmp_path / "out", "--benchmarks", "none", "--against", tmp_path / "held.txt")
    assert "no problems found" in output
    found = run("check", tmp_path / "clean", "--benchmarks", "none", "--against", tmp_path / "held.txt", code=1)
    assert "saferlhf: items that share eight words in a row with a benchmark: held 3" in found


def test_installed_benchmarks_are_read_from_local_rows(local: Path, tmp_path: Path) -> None:
    question = "Which of the two lighthouses near the old northern harbour is the taller one by day?"
    row = {
        "pair_id": "1", "source": "mmlu-pro-law", "question": question, "response_A": "a", "response_B": "b",
        "label": "A>B",
    }  # fmt: skip
    for part in ("gpt", "claude"):
        rows.write_parquet([row], tmp_path / "benchmarks" / "judgebench" / f"{part}.parquet")
    asked = rows.saferlhf(80)
    asked[5]["prompt"] = f"Hello! {question}"
    rows.write_parquet(asked, tmp_path / "rows" / "saferlhf.parquet")
    given = ("--benchmarks", "judgebench", "--benchmark-rows", tmp_path / "benchmarks", "--scale", "0.15")
    manifest = build(tmp_path / "out", local=tmp_path / "rows", options=("--sources", "saferlhf", *given))
    assert manifest.benchmarks == {"judgebench": 1}
    assert manifest.sources["saferlhf"].contaminated_by == {"judgebench": 1}


def test_duplicates_and_long_rows_are_counted(tmp_path: Path) -> None:
    asked = rows.saferlhf(10)
    asked.append({**asked[0], "prompt": asked[0]["prompt"].upper()})
    asked[3]["response_0"] = "well " * 10_000
    asked[4]["response_1"] = asked[4]["response_0"]
    rows.write_parquet(asked, tmp_path / "saferlhf.parquet")
    manifest = build(tmp_path / "out", local=tmp_path, options=("--sources", "saferlhf", "--scale", "1"))
    assert manifest.sources["saferlhf"].rejected == {"duplicate": 1, "equal_answers": 1, "too_long": 1}
    assert len(all_items(tmp_path / "out")) == 8


@pytest.mark.slow
def test_sampled_answers_are_compared_by_math_verify_and_become_items(local: Path, tmp_path: Path) -> None:
    names = ("--sources", "math,webinstruct")
    problems = tmp_path / "problems.jsonl"
    output = run("problems", "--out", problems, "--local", local, "--benchmarks", "none", "--scale", "0.01", *names)
    found = read_problems(problems)
    assert (
        len(found) == 46 + 40
    )  # math: 2 x (10 + 10 + 3); webinstruct: 2 x 21 requested, but only 40 of its 80 rows are suitable
    assert f"{len(found)} problems" in output
    answered = []
    for problem in found:
        if problem.source == "math":  # the reference is n/2 in LaTeX
            number = int(problem.reference.split("{")[1].split("}")[0])
            said_rightly = rf"Half of it: \boxed{{{number / 2}}}"
            wrong = [rf"I say \boxed{{{number + more}}}" for more in (1, 2, 3)]
            wrong.append(rf"I say \boxed{{{number + 1}.0}}")  # the same answer as the first wrong one
        else:
            said_rightly = r"Surely \boxed{\text{B}}" if problem.reference == "(B)" else r"\boxed{5/2}"
            wrong = [r"\boxed{C}", r"\boxed{7}"]
        texts = [*wrong, said_rightly]
        answered.append(
            AnsweredProblem(
                source=problem.source,
                problem=problem.id,
                candidates=tuple(CandidateAnswer(text=text, generator="tiny") for text in texts),
            )
        )
    write_candidates(answered, tmp_path / "candidates.jsonl")
    manifest = build(tmp_path / "out", local=local, options=(*names, "--candidates", tmp_path / "candidates.jsonl"))
    point, pair, list_ = Mode.POINTWISE, Mode.PAIRWISE, Mode.LISTWISE
    assert manifest.sources["math"].made == {point: 10, pair: 10, list_: 3}
    assert manifest.sources["webinstruct"].made == {point: 10, pair: 10, list_: 0}  # only two wrong answers
    for item in all_items(tmp_path / "out"):
        assert item.best is not None
        assert item.responses[item.best].startswith(("Half of it", "Surely", r"\boxed{5/2}"))
        assert item.generator == "tiny"
        if item.mode is list_:
            assert len(item.responses) == 4
            assert sum("I say" in text and text.endswith(".0}") for text in item.responses) <= 1


def test_check_detects_changed_items(local: Path, tmp_path: Path) -> None:
    from dataclasses import replace

    from tirjudge_training.items import write_items

    build(tmp_path, local=local, options=("--sources", "saferlhf"))
    assert "no problems found" in run("check", tmp_path, "--benchmarks", "none")
    items = read_items(tmp_path / "train.parquet")
    write_items([replace(items[0], best=1 - (items[0].best or 0)), *items[1:]], tmp_path / "train.parquet")
    assert "train.parquet: sha256 is" in run("check", tmp_path, "--benchmarks", "none", code=1)
    write_items(items[1:], tmp_path / "train.parquet")
    result = CliRunner().invoke(app, ["check", str(tmp_path), "--benchmarks", "none", "--json"])
    problems = json.loads(result.stdout)["problems"]
    assert any("num_items is 7, the manifest says 8" in problem for problem in problems)
    assert any("in the manifest" in problem for problem in problems)


def test_check_fails_before_reading_benchmarks_if_the_folder_is_missing(tmp_path: Path) -> None:
    output = run("check", tmp_path, "--benchmark-rows", "/nowhere", code=2)
    assert f"create it with `tirjudge train data build --out {tmp_path}`" in output


def test_sources_are_listed() -> None:
    listed = json.loads(run("sources", "--json"))
    assert sum(source["wanted"]["pairwise"] for source in listed) == 12_450
    assert [source["name"] for source in listed if not source["commercial"]] == ["saferlhf"]
    assert not any(part["pinned"] for source in listed for part in source["parts"])
    assert "PKU-Alignment" in run("sources")
