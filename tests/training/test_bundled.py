"""The judge that ships: it is right because its programs are, and its files say what they are."""

import json
from collections.abc import AsyncIterator

import pytest

from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.judge import Judge
from tirjudge.model import bundled_checkpoint
from tirjudge.profile import load_profile
from tirjudge.tools.python import PythonTool
from tirjudge.types import JudgeRequest, Mode
from tirjudge_sandbox import SandboxPool
from tirjudge_training.bundled.build import bundled_profile
from tirjudge_training.bundled.card import write_card
from tirjudge_training.bundled.evaluate import TEST_SETS, Score, measure

NUM_ITEMS = 120
SEED = 11


@pytest.fixture
async def judge() -> AsyncIterator[Judge]:
    engine = EmbeddedEngine.load(bundled_checkpoint())
    try:
        async with SandboxPool(slots=2) as pool:
            yield Judge(engine=engine, tools=[PythonTool(pool)], profile=load_profile(bundled_checkpoint()))
    finally:
        engine.close()


async def scored(judge: Judge, name: str) -> Score:
    return await measure(judge, next(s for s in TEST_SETS if s.name == name), num_items=NUM_ITEMS, seed=SEED)


@pytest.mark.parametrize(
    "name", ["pairwise, one instruction", "pointwise pairs, one instruction", "listwise of four, one instruction"]
)
async def test_held_out_instructions_are_judged_right(judge: Judge, name: str) -> None:
    score = await scored(judge, name)
    assert score.accuracy > 0.87  # three standard errors, of 120 items, below the figures in the card
    assert score.tool_use_rate > 0.98
    assert score.code_error_rate < 0.03


@pytest.mark.parametrize("change", ["outputs replaced by noise", "tools off"])
async def test_without_what_its_programs_print_it_is_at_chance(judge: Judge, change: str) -> None:
    assert (await scored(judge, f"pairwise, {change}")).accuracy < 0.65
    assert (await scored(judge, f"listwise of four, {change}")).accuracy < 0.42


async def test_where_nothing_can_be_computed_it_writes_no_program(judge: Judge) -> None:
    assert (await scored(judge, "pairwise, nothing to compute")).tool_use_rate < 0.02


async def test_the_best_of_twenty_six_is_found_in_groups(judge: Judge) -> None:
    responses = ["quiet rivers run, " * 40 for _ in range(26)]
    responses[17] = "quiet rivers run " * 40
    request = JudgeRequest(mode=Mode.LISTWISE, prompt="Write about rivers. Do not use any commas.", responses=responses)
    judgment = await judge.judge(request)
    assert max(len(rollout.order) for rollout in judgment.rollouts) <= judge.profile.group_size
    assert judgment.verdict.best == 17


async def test_the_same_request_gives_the_same_verdict_again(judge: Judge) -> None:
    request = JudgeRequest(
        mode=Mode.PAIRWISE, prompt="Use at least 3 sentences.", responses=["One. Two.", "One. Two. Three."], votes=3
    )
    first, second = await judge.judge(request), await judge.judge(request)
    assert first.verdict.best == second.verdict.best == 1
    assert [r.turns for r in first.rollouts] == [r.turns for r in second.rollouts]


def test_the_checkpoint_was_trained_for_these_prompts_and_this_loop() -> None:
    profile = load_profile(bundled_checkpoint()).model_copy(update={"tokenizer_sha256": None})
    assert profile == bundled_profile()
    assert sum(file.stat().st_size for file in bundled_checkpoint().iterdir()) < 10_000_000


def test_the_card_is_what_the_measured_numbers_make_of_it(tmp_path) -> None:
    source = bundled_checkpoint()
    card = (source / "README.md").read_text(encoding="utf-8")
    for file in source.iterdir():
        if file.name != "README.md":
            (tmp_path / file.name).symlink_to(file)
    write_card(tmp_path)
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == card
    parameters = json.loads((source / "training.json").read_text())["stages"][-1]["trained"]["num_parameters"]
    assert 1_000_000 <= parameters <= 4_000_000


@pytest.mark.parametrize("sha256", ["format_sha256", "prompts_sha256"])
def test_a_checkpoint_for_other_prompts_is_refused(tmp_path, sha256: str) -> None:
    profile = bundled_profile().model_dump(mode="json", exclude={"format_sha256"})
    (tmp_path / "judge.json").write_text(json.dumps({**profile, sha256: "0" * 64}))
    with pytest.raises(ValueError, match="trained on other prompts"):
        load_profile(tmp_path)
