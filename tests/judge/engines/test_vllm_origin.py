"""The request context (caller and priority) reaches the engine in every turn. The file
also tests the detection of repetitions."""

from __future__ import annotations

import pytest

from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.request_context import DEFAULT_CONTEXT, RequestContext, coming_from, origin
from tirjudge.tools.base import Bindings
from tirjudge.tools.python import PythonTool
from tirjudge.types import Completion, ExecResult, JudgeRequest, Mode, Outcome, Sampling
from tirjudge_server.call import Call, Priority
from tirjudge_server.repetition import RepetitionDetection
from tirjudge_server.service import JudgeService

REQUEST = JudgeRequest(mode=Mode.PAIRWISE, prompt="Count.", responses=["1", "2"])
PROGRAM = "```python\nprint(1)\n```\n```output"
SCRIPT = [PROGRAM, PROGRAM, "<preference>A</preference>"]


class PrintsOne:
    """Sandbox whose programs print 1."""

    async def run(self, code: str, *, bindings: Bindings, offer: object = None) -> ExecResult:
        return ExecResult(outcome=Outcome.OK, stdout="1\n")


class Listening(ScriptedEngine):
    """Scripted engine that records the request context and the turn index of each request."""

    def __init__(self, script: list[str]) -> None:
        super().__init__(script, label_probs={"A": 0.9, "B": 0.1})
        self.heard: list[tuple[RequestContext, int]] = []

    async def generate(self, token_ids, *, sampling: Sampling, session: str) -> Completion:
        self.heard.append((origin(), sampling.turn))
        return await super().generate(token_ids, sampling=sampling, session=session)


async def test_each_turn_has_its_index_and_the_verdict_has_the_last_one():
    engine = Listening(SCRIPT)
    await Judge(engine=engine, tools=[PythonTool(PrintsOne())]).judge(REQUEST)
    assert engine.heard == [(DEFAULT_CONTEXT, turn) for turn in range(4)]


async def test_a_forced_verdict_has_the_last_turn_index():
    engine = Listening(["I do not know."])
    await Judge(engine=engine).judge(REQUEST.model_copy(update={"tools": "off"}))
    assert [turn for _, turn in engine.heard] == [0, 1]


@pytest.mark.parametrize("priority", Priority)
async def test_the_server_sets_the_caller_and_the_priority(priority: Priority):
    engine = Listening(SCRIPT)
    service = JudgeService(Judge(engine=engine, tools=[PythonTool(PrintsOne())]))
    await service.answer(REQUEST, call=Call(caller="ann", priority=priority))
    with coming_from("ann", urgency=priority):
        expected = origin()
    assert expected.cache_salt is not None
    assert {context for context, _ in engine.heard} == {expected}
    assert origin() == DEFAULT_CONTEXT


def test_a_more_urgent_class_always_goes_first():
    later, sooner = RequestContext(urgency=1), RequestContext(urgency=0)
    assert later.priority(turn=10_000) > sooner.priority(turn=0) > sooner.priority(turn=1)


async def test_the_embedded_engine_separates_the_caches_of_callers(shared_engine: EmbeddedEngine):
    ids = [70 + n % 50 for n in range(90)]
    cached = []
    for caller in ("ann", "bob", "ann", None, "bob"):
        with coming_from(caller):
            done = await shared_engine.generate(ids, sampling=Sampling(max_tokens=2), session=f"apart {caller}")
        cached.append(done.num_cached)
    assert cached == [0, 0, 89, 0, 89]


@pytest.mark.parametrize(
    ("token_ids", "expected"),
    [
        ([1, 1, 1], 3),
        ([9, 1, 1, 1, 1], 4),
        ([1, 2, 1, 2, 1, 2], 6),
        ([1, 2, 1, 2, 1], None),
        ([5, 1, 2, 3, 1, 2, 3, 1, 2, 3], None),
        ([1, 1, 2, 1, 1, 2], None),
    ],
)
def test_a_pattern_repeated_often_enough_is_a_repetition(token_ids: list[int], expected: int | None):
    detection = RepetitionDetection(max_pattern_size=2, min_count=3)
    assert detection.ends_at(token_ids) == expected


def test_patterns_below_the_minimum_size_are_ignored():
    assert RepetitionDetection(max_pattern_size=2, min_pattern_size=2, min_count=2).ends_at([1, 1, 1, 1]) == 4
    assert RepetitionDetection(max_pattern_size=3, min_pattern_size=3, min_count=2).ends_at([1, 2, 1, 2, 1]) is None


@pytest.mark.parametrize(
    "wrong", [{"max_pattern_size": 2}, {"max_pattern_size": 1, "min_pattern_size": 2, "min_count": 2}]
)
def test_inconsistent_repetition_limits_are_rejected(wrong: dict[str, int]):
    with pytest.raises(ValueError, match="min_pattern_size <= max_pattern_size and min_count >= 2"):
        RepetitionDetection.model_validate(wrong)
