"""The scorer that all adapters share: scores, and the reasons for missing scores."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tests.integrations.conftest import Serve
from tirjudge.client import RequestRefused
from tirjudge.integrations.scoring import ScoredSample, Scorer, ScoringSample, prompt_of, response_of
from tirjudge.types import ChatMessage

NINE = (9 - 1) / 9
"""A score of 9 out of 10 on the scale from 0 to 1."""

QUESTION = ScoringSample(prompt="What is 2 + 2?", response="4", reference="four")


async def test_a_score_from_1_to_10_is_mapped_to_0_to_1(serve: Serve) -> None:
    with serve("<score>9</score>") as served:
        scored = await Scorer(url=served.url, tools="off").score_one(QUESTION)
    assert scored.score == pytest.approx(NINE)
    assert (scored.reason, scored.num_tool_calls, len(scored.judgment_ids)) == (None, 0, 1)


async def test_the_judge_is_shown_the_reference_and_the_rubric(serve: Serve) -> None:
    with serve("<score>9</score>") as served:
        await Scorer(url=served.url, tools="off", rubric="Be strict about units.").score_one(QUESTION)
    assert "four" in served.prompts[0]
    assert "Be strict about units." in served.prompts[0]


async def test_programs_are_counted(serve: Serve) -> None:
    texts = ["```python\nprint(1)\n```\n```output", "<score>9</score>"]
    with serve(texts, sandbox="real") as served:
        scored = await Scorer(url=served.url).score_one(QUESTION)
    assert scored.num_tool_calls == 1
    assert scored.numbers(fallback=0.5) == {"score": scored.score, "judge_failed": 0.0, "tool_calls": 1.0}


async def test_an_abstention_is_not_scored(serve: Serve) -> None:
    with serve("<score>9</score>", sandbox="real") as served:
        scored = await Scorer(url=served.url, tools="on").score_one(QUESTION)
    assert scored.score is None
    assert scored.reason == "abstained: no_program_ran"
    assert scored.numbers(fallback=0.5) == {"score": 0.5, "judge_failed": 1.0, "tool_calls": 0.0}


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("concurrency", 0, "use more than 0"),
        ("deadline_s", -1.0, "use more than 0"),
        ("strategy", "bogus", "knockout"),
        ("votes", 0, "greater than or equal to 1"),
        ("tools", True, "'auto'"),
        ("require", "Checked", "'checked'"),
    ],
)
def test_an_invalid_option_is_refused_before_the_first_completion(option: str, value: object, said: str) -> None:
    with pytest.raises(RequestRefused, match=f"{option}: .*{said}"):
        Scorer(url="http://judge", **{option: value})


async def test_an_unreachable_server_leaves_completions_without_a_score(nowhere: str) -> None:
    scored = await Scorer(url=nowhere, deadline_s=0.3, concurrency=1).score([QUESTION] * 50)
    assert {one.score for one in scored} == {None}
    assert {one.reason for one in scored} == {scored[0].reason}
    assert scored[0].reason is not None
    assert "cannot be reached" in scored[0].reason


async def test_a_broken_sandbox_leaves_completions_without_a_score(serve: Serve) -> None:
    with serve("```python\nprint(1)\n```\n```output", sandbox="broken") as served:
        scored = await Scorer(url=served.url, deadline_s=1.0).score_one(QUESTION)
    assert scored.score is None
    assert scored.reason is not None
    assert "sandbox" in scored.reason or scored.reason.startswith("deadline: ")


async def test_a_failing_engine_leaves_completions_without_a_score(serve: Serve) -> None:
    with serve([]) as served:
        scored = await Scorer(url=served.url, tools="off", deadline_s=1.0).score_one(QUESTION)
    assert scored.score is None
    assert scored.reason is not None
    # On a loaded machine the last attempt may still be in flight at the deadline.
    assert scored.reason.startswith(("server: ", "deadline: "))


async def test_a_missed_deadline_leaves_completions_without_a_score(serve: Serve) -> None:
    with serve("<score>9</score>", delay_s=30) as served:
        scored = await Scorer(url=served.url, tools="off", deadline_s=0.5).score_one(QUESTION)
    assert scored.score is None
    assert scored.reason is not None
    assert scored.reason.startswith(("deadline: ", "abstained: deadline"))


async def test_a_refused_completion_affects_neither_the_others_nor_the_order(serve: Serve) -> None:
    too_long = ScoringSample(prompt="p", response="r" * 17 * 1024 * 1024)
    candidates = [QUESTION, too_long, ScoringSample(prompt="p", response="last")]
    with serve("<score>9</score>") as served:
        scored = await Scorer(url=served.url, tools="off", concurrency=2, deadline_s=60).score(candidates)
    assert [one.score for one in scored] == [pytest.approx(NINE), None, pytest.approx(NINE)]
    assert len({one.judgment_ids for one in scored}) == 3
    assert (scored[1].reason or "").startswith("refused: body: ")


async def test_an_unknown_model_raises_an_error(serve: Serve) -> None:
    with serve("<score>9</score>") as served, pytest.raises(RequestRefused, match="no-such-model"):
        await Scorer(url=served.url, tools="off", model="no-such-model").score([QUESTION] * 3)


async def test_completions_of_one_prompt_can_be_compared(serve: Serve) -> None:
    candidates = [
        ScoringSample(prompt="p", response="one"),
        ScoringSample(prompt="q", response="alone"),
        ScoringSample(prompt="p", response="two"),
    ]
    with serve("<preference>A</preference>", label_probs={"A": 0.75, "B": 0.25}) as served:
        one, alone, two = await Scorer(url=served.url, tools="off", strategy="all_pairs").score(candidates)
    assert alone == ScoredSample(score=None, reason=alone.reason)
    assert sorted([one.score, two.score], key=float) == [pytest.approx(0.25), pytest.approx(0.75)]


async def test_the_api_key_may_be_in_a_file_and_is_not_in_the_repr(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret\n")
    scorer = Scorer(url="http://judge", api_key="secret")
    assert "secret" not in repr(scorer)
    with serve("<score>9</score>") as served:
        scored = await Scorer(url=served.url, tools="off", api_key_file=tmp_path / "key").score_one(QUESTION)
    assert scored.score is not None


def test_a_scorer_can_be_pickled() -> None:
    scorer = Scorer(url="http://judge", strategy="knockout")
    assert pickle.loads(pickle.dumps(scorer)) == scorer


def test_messages_of_hosts_are_converted_to_request_messages() -> None:
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]},
    ]
    assert prompt_of(messages) == [
        ChatMessage(role="system", content="Be brief."),
        ChatMessage(role="user", content="[image]\nWhat is it?"),
    ]


def test_the_response_is_the_last_assistant_message() -> None:
    turns = [
        {"role": "assistant", "content": "I look it up."},
        {"role": "tool", "content": "42"},
        {"role": "assistant", "content": "It is 42."},
    ]
    assert (response_of(turns), response_of("text"), response_of([])) == ("It is 42.", "text", "")
