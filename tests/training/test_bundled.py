"""The bundled judge: its verdicts depend on the output of its programs, and its files are consistent."""

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random

import pytest
import pytest_asyncio

from tests.judgments import without_times
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.judge import Judge
from tirjudge.model import bundled_checkpoint
from tirjudge.profile import load_profile
from tirjudge.selective import GradedItem, selective_accuracy
from tirjudge.tools.python import PythonTool
from tirjudge.types import Basis, JudgeRequest, Mode, Outcome
from tirjudge_sandbox import SandboxPool
from tirjudge_training.bundled.build import bundled_profile, second_profile
from tirjudge_training.bundled.card import write_card
from tirjudge_training.bundled.evaluate import TEST_SETS, NoiseSandbox, Score, measure
from tirjudge_training.bundled.measuring.figures import figures_of, sameness
from tirjudge_training.bundled.measuring.items import MeasuredItem
from tirjudge_training.bundled.measuring.judging import MeasuredJudgment, ShownChecks
from tirjudge_training.bundled.measuring.sets import sets_named
from tirjudge_training.checkpoints import UNCALIBRATED
from tirjudge_training.instructions.composing import composer_of
from tirjudge_training.instructions.notation import parse_checks
from tirjudge_training.instructions.written import HELD_OUT_WRITERS

NUM_ITEMS = 120
NUM_ITEMS_FAST = 16
SEED = 11

in_module_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge() -> AsyncIterator[Judge]:
    engine = EmbeddedEngine.load(bundled_checkpoint())
    try:
        async with SandboxPool(slots=2) as pool:
            yield Judge(engine=engine, tools=[PythonTool(pool)], profile=load_profile(bundled_checkpoint()))
    finally:
        engine.close()


async def scored(judge: Judge, name: str, *, num_items: int = NUM_ITEMS) -> Score:
    return await measure(judge, next(s for s in TEST_SETS if s.name == name), num_items=num_items, seed=SEED)


@pytest.mark.parametrize("mode", [Mode.POINTWISE, Mode.PAIRWISE])
@in_module_loop
async def test_verdicts_without_tools_are_short(judge: Judge, mode: Mode) -> None:
    """A mean of checkpoints once wrote digits without end for such prompts. The accuracy of guesses did not show it."""
    rng, composer = Random(SEED), composer_of(HELD_OUT_WRITERS)
    prompts = [composer.draw(rng, num_sentences=rng.randint(1, 4)).text for _ in range(40)]
    for prompt in prompts:
        request = JudgeRequest(mode=mode, prompt=prompt, responses=["Yes.", "No."], tools="off", temperature=0.0)
        judgment = await judge.judge(request)
        assert [turn.num_tokens for rollout in judgment.rollouts for turn in rollout.turns if turn.num_tokens > 8] == []


@pytest.mark.slow
@in_module_loop
async def test_pairs_are_judged_with_programs(judge: Judge) -> None:
    score = await scored(judge, "pairwise, one instruction", num_items=NUM_ITEMS_FAST)
    assert score.num_items == score.num_rollouts == NUM_ITEMS_FAST
    assert score.accuracy >= 0.75  # chance is 0.5
    assert score.tool_use_rate > 0.8
    assert score.num_calls >= score.num_rollouts_with_calls


@in_module_loop
async def test_noise_replaces_the_output_of_programs(judge: Judge) -> None:
    assert judge.sandbox is not None
    result = await NoiseSandbox(judge.sandbox, seed=1).run("print('A 1')\nprint('CHECK 1')", bindings={})
    assert result.outcome is Outcome.OK
    assert len(result.stdout) >= 8
    assert not set(result.stdout) - set("ABCDEFGHJKMNPQRSTUVWXYZ0123456789 \n")
    assert "CHECK" not in result.stdout


@pytest.mark.slow
@in_module_loop
@pytest.mark.parametrize(
    "name", ["pairwise, one instruction", "pointwise pairs, one instruction", "listwise of four, one instruction"]
)
async def test_held_out_instructions_are_judged_with_programs(judge: Judge, name: str) -> None:
    score = await scored(judge, name)
    assert score.accuracy > 0.75  # well below the accuracy in the card, well above chance
    assert score.tool_use_rate > 0.9
    assert score.code_error_rate < 0.1


@pytest.mark.slow
@in_module_loop
@pytest.mark.parametrize("change", ["outputs replaced by noise", "tools off"])
async def test_accuracy_drops_to_chance_without_program_outputs(judge: Judge, change: str) -> None:
    # Chance plus at least three standard errors of 120 items.
    assert (await scored(judge, f"pairwise, {change}")).accuracy < 0.65
    assert (await scored(judge, f"listwise of four, {change}")).accuracy < 0.42


@pytest.mark.slow
@in_module_loop
async def test_programs_are_rare_when_nothing_can_be_computed(judge: Judge) -> None:
    score = await scored(judge, "pairwise, nothing to compute", num_items=NUM_ITEMS_FAST)
    assert score.tool_use_rate < 0.25


@pytest.mark.slow
@in_module_loop
async def test_long_list_is_judged_in_groups(judge: Judge) -> None:
    responses = ["quiet rivers run, " * 40 for _ in range(26)]
    responses[17] = "quiet rivers run " * 40
    request = JudgeRequest(mode=Mode.LISTWISE, prompt="Write about rivers. Do not use any commas.", responses=responses)
    judgment = await judge.judge(request)
    assert max(len(rollout.order) for rollout in judgment.rollouts) <= judge.profile.group_size
    assert {index for rollout in judgment.rollouts for index in rollout.order} == set(range(26))
    assert judgment.verdict.best in range(26)


@in_module_loop
async def test_repeated_request_has_the_same_result(judge: Judge) -> None:
    request = JudgeRequest(
        mode=Mode.PAIRWISE, prompt="Use at least 3 sentences.", responses=["One. Two.", "One. Two. Three."], votes=3
    )
    first, second = await judge.judge(request), await judge.judge(request)
    assert first.verdict.best == second.verdict.best
    # The second run has the prompt in its cache, so sums are added in another order.
    for one, other in zip(first.rollouts, second.rollouts, strict=True):
        assert without_times(one).turns == without_times(other).turns
        assert one.verdict is not None
        assert other.verdict is not None
        assert one.verdict.label == other.verdict.label
        assert one.verdict.probabilities == pytest.approx(other.verdict.probabilities, abs=1e-6)


def test_checkpoint_matches_the_prompts_and_the_loop() -> None:
    profile = load_profile(bundled_checkpoint()).model_copy(update={"tokenizer_sha256": None})
    assert profile.model_copy(update=UNCALIBRATED) in (bundled_profile(), second_profile())
    assert sum(file.stat().st_size for file in bundled_checkpoint().iterdir()) < 16_000_000


def link_files(source: Path, folder: Path, *, without: Sequence[str]) -> None:
    for file in source.iterdir():
        if file.name not in without:
            (folder / file.name).symlink_to(file)


def test_card_is_generated_from_the_recorded_numbers(tmp_path) -> None:
    source = bundled_checkpoint()
    card = (source / "README.md").read_text(encoding="utf-8")
    link_files(source, tmp_path, without=("README.md",))
    write_card(tmp_path)
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == card
    parameters = json.loads((source / "training.json").read_text())["stages"][-1]["trained"]["num_parameters"]
    assert 1_000_000 <= parameters <= 8_000_000


def test_card_of_the_second_generation_says_that_it_guesses_evenly(tmp_path) -> None:
    source = bundled_checkpoint()
    link_files(source, tmp_path, without=("README.md", "training.json"))
    training = json.loads((source / "training.json").read_text())
    for checked, words in (
        (None, "reads the parameters"),
        ({"nothing": 0.22}, "all labels get about the same probability"),
    ):
        training["stages"][-1]["recipe"]["checked"] = checked
        (tmp_path / "training.json").write_text(json.dumps(training))
        write_card(tmp_path)
        card = (tmp_path / "README.md").read_text(encoding="utf-8")
        assert words in " ".join(card.split())
        assert "{" not in card.partition("## Held-out")[0]


def test_card_shows_coverage_and_the_accuracy_of_each_basis_if_they_are_recorded(tmp_path) -> None:
    source = bundled_checkpoint()
    link_files(source, tmp_path, without=("README.md", "scores.json"))
    scores = json.loads((source / "scores.json").read_text())
    items = [GradedItem(credit=credit, has_verdict=True, basis="reasoned") for credit in (1.0, 1.0, 0.0)]
    none = GradedItem(credit=0.0, has_verdict=False, basis=None)
    scores["sets"][0]["selective"] = selective_accuracy([*items, none]).as_json()
    (tmp_path / "scores.json").write_text(json.dumps(scores))
    write_card(tmp_path)
    name = scores["sets"][0]["name"]
    assert f"\n| {name} | 75.0 % | 66.7 % | none | 75.0 % (66.7 %) | none |\n" in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize("sha256", ["format_sha256", "prompts_sha256"])
def test_checkpoint_for_other_prompts_is_rejected(tmp_path, sha256: str) -> None:
    profile = bundled_profile().model_dump(mode="json", exclude={"format_sha256"})
    (tmp_path / "judge.json").write_text(json.dumps({**profile, sha256: "0" * 64}))
    with pytest.raises(ValueError, match="training prompts differ"):
        load_profile(tmp_path)


def test_card_shows_real_rows_first_if_they_are_measured(tmp_path) -> None:
    source = bundled_checkpoint()
    link_files(source, tmp_path, without=("README.md", "measured.json"))
    write_card(tmp_path)
    assert "## Real rows" not in (tmp_path / "README.md").read_text(encoding="utf-8")
    (measured_set,) = sets_named(["ifeval-edits"])
    item = MeasuredItem(
        id="ifeval:1", group="punctuation:no_comma", mode=Mode.PAIRWISE, prompt="Write. No commas.",
        responses=("So, so.", "So so."), right=frozenset({1}), asked=parse_checks("commas == 0"),
    )  # fmt: skip
    graded: list[tuple[float, Basis]] = [(1.0, "checked"), (1.0, "checked"), (0.0, "checked"), (0.0, "reasoned")]
    judged = [
        MeasuredJudgment(
            item=item, credit=credit, expected_credit=credit, basis=basis, confidence=0.9, choice_probability=0.9,
            written=("count(r, ',') == 0",), output="A 0\nB 1", num_calls=1, num_failed_calls=0,
        )
        for credit, basis in graded
    ]  # fmt: skip
    beside = [{"name": "first", "limit": 100, "accuracies": {"ifeval-edits": 0.69}}]
    figures = {"limit": None, "beside": beside, "sets": [figures_of(measured_set, judged, elapsed_s=2.0)]}
    figures["sets"][0]["sameness"] = sameness([ShownChecks(item=item, lists=(("a",), ("a",), ("a",), ("b",)))])
    (tmp_path / "measured.json").write_text(json.dumps(figures))
    write_card(tmp_path)
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert card.index("## Real rows") < card.index("## Held-out synthetic items")
    # ECE: all choices have the confidence 0.9, half are right. Wilson's interval of 2 of 4 is 15.0 to 85.0 %.
    title = measured_set.title
    assert f"| {title} | 4 | 50.0 % | 15.0 % to 85.0 % | 75.0 % | 66.7 % | 0.400 | 100.0 % | 50.0 % | 100.0 % |" in card
    assert "| 100.0 % | 69.0 % |\n" in card
    assert "on at most 100 items per set" in " ".join(card.split())
    assert "| `punctuation:no_comma` | 4 | 75.0 % | 66.7 % |\n" in card
    # The 0 of the check is not in the prompt.
    assert f"| {title} | 100.0 % | - | - | - |\n" in card
    assert "for 0.0 % of 1 pairs" in card
    assert (
        f"- {title}: `ifeval:1` (punctuation:no_comma, checked), `ifeval:1` (punctuation:no_comma, reasoned)\n" in card
    )
