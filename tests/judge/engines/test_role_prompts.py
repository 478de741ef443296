"""Prompts with several messages and with roles of their own, through each kind of engine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.chat_server import MODEL, serving_chat
from tirjudge.chat_template import CHATML, ChatTemplate
from tirjudge.engines.chat import CharacterTokenizer, messages_of
from tirjudge.engines.scripted import ByteTokenizer
from tirjudge.engines.tokenization import LocalTokenizer
from tirjudge.errors import CheckpointError
from tirjudge.judge import Judge
from tirjudge.opening import open_judge, open_model
from tirjudge.prompt_messages import PromptMessage, chat_of
from tirjudge.types import JudgeRequest, Mode, StopReason

PAIR = JudgeRequest(mode=Mode.PAIRWISE, prompt="Which is longer?", responses=["one", "three"])
ROLES = [
    PromptMessage(role="system", content="Judge {it}."),
    PromptMessage(role="response_1", content=""),
    PromptMessage(role="response_2", content="zwei\n\U0001f600"),
]


async def test_a_sequence_of_characters_keeps_roles_and_empty_messages() -> None:
    ids = await CharacterTokenizer().encode_prompt(ROLES)
    assert messages_of(ids) == chat_of(ROLES)


async def test_the_scripted_engine_shows_roles() -> None:
    ids = await ByteTokenizer().encode_prompt(ROLES)
    assert ByteTokenizer().decode(ids) == "[system]\nJudge {it}.\n[response_1]\n\n[response_2]\nzwei\n\U0001f600"


async def test_the_chat_template_of_a_checkpoint_writes_all_messages(random_checkpoint: Path) -> None:
    tokenizer = LocalTokenizer.load(random_checkpoint)
    rendered = ChatTemplate(CHATML).render(chat_of(ROLES))
    assert tokenizer.decode(await tokenizer.encode_prompt(ROLES)) == rendered
    assert "<|im_start|>response_1\n<|im_end|>" in rendered


def test_a_template_may_refuse_a_role() -> None:
    strict = ChatTemplate(
        "{% for m in messages %}{% if m.role != 'user' %}{{ raise_exception('unknown role ' + m.role) }}{% endif %}"
        "{{ m.content }}{% endfor %}"
    )
    with pytest.raises(CheckpointError, match="unknown role system"):
        strict.render_prompt(ROLES)


async def test_a_chat_endpoint_gets_the_system_message_of_the_format() -> None:
    with serving_chat(["I prefer the second one. [[B]]"], chances={"A": 0.25, "B": 0.75}) as chat:
        async with open_model(f"chat:{chat.url}#{MODEL}", format="mt-bench-pair") as model:
            judgment = await Judge(engine=model.engine, profile=model.profile).judge(PAIR)
    (body,) = chat.bodies
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["messages"][0]["content"].startswith("Please act as an impartial judge")
    assert body["messages"][1]["content"].startswith(
        "[User Question]\nWhich is longer?\n\n[The Start of Assistant A's Answer]"
    )
    assert "stop" not in body
    verdict = judgment.rollouts[0].verdict
    assert verdict is not None
    assert verdict.label == "B"
    assert verdict.probabilities == pytest.approx({"A": 0.25, "B": 0.75, "tie": 0.0})


async def test_a_chat_endpoint_is_not_asked_again_for_a_verdict() -> None:
    with serving_chat(["Both are fine."]) as chat:
        async with open_model(f"chat:{chat.url}#{MODEL}", format="mt-bench-pair") as model:
            judgment = await Judge(engine=model.engine, profile=model.profile).judge(PAIR)
    assert len(chat.bodies) == 1
    assert (judgment.verdict.status, judgment.verdict.reason) == ("abstained", "no_verdict")


async def test_a_chat_endpoint_gets_roles_of_their_own() -> None:
    with serving_chat(['{"score_1": 2, "score_2": 4, "ranking": 5}']) as chat:
        async with open_model(f"chat:{chat.url}#{MODEL}", format="nemotron-genrm") as model:
            asked = PAIR.model_copy(update={"rubric": "Count the letters."})
            judgment = await Judge(engine=model.engine, profile=model.profile).judge(asked)
    order = judgment.rollouts[0].order
    assert chat.bodies[0]["messages"] == [
        {"role": "user", "content": "Which is longer?"},
        {"role": "principle", "content": "Count the letters."},
        {"role": "response_1", "content": PAIR.responses[order[0]]},
        {"role": "response_2", "content": PAIR.responses[order[1]]},
    ]
    assert judgment.verdict.best == order[1]


@pytest.mark.parametrize("format", ["mt-bench-pair", "nemotron-genrm", "rewardanything", "rm-r1-reasoning"])
async def test_the_embedded_engine_abstains_on_nonsense(format: str, random_checkpoint: Path) -> None:
    async with open_judge(f"embedded:{random_checkpoint}", tools=(), format=format) as judge:
        judgment = await judge.judge(PAIR)
    assert judgment.verdict.status == "abstained"
    assert judgment.rollouts[0].stop_reason in (StopReason.LENGTH, StopReason.NO_VERDICT)
    assert not judgment.rollouts[0].turns[0].text.startswith("<preference>")


async def test_a_judge_that_was_trained_for_a_format_is_not_asked_in_another(random_checkpoint: Path) -> None:
    with pytest.raises(CheckpointError, match="mt-bench-pair given, but tirjudge-tiny was trained for tirjudge/"):
        async with open_model(format="mt-bench-pair"):
            pass


async def test_a_checkpoint_cannot_name_a_file_as_its_format(random_checkpoint: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(random_checkpoint, copy)
    (copy / "judge.json").write_text('{"name": "copy", "format": "mine.toml"}')
    with pytest.raises(CheckpointError, match=r"format: mine\.toml given, but a checkpoint names an installed format"):
        async with open_model(f"embedded:{copy}"):
            pass
