"""Where the output of a program meets the text of the model: ids are only appended, and each text is encoded once."""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
import pytest_asyncio

from tests.families.models import Families, ForcedEngine, ForcedModels, each_family
from tests.judgments import build_request
from tests.servers import serve_async
from tirjudge.engines.tokenization import LocalTokenizer
from tirjudge.engines.vllm import VLLMEngine
from tirjudge.formats import FORMATS
from tirjudge.formats.blocks import OUTPUT_FENCE
from tirjudge.judge import Judge
from tirjudge.profile import Profile
from tirjudge.tools.python import python_tools
from tirjudge.types import Rollout
from tirjudge_sandbox import SandboxPool
from tirjudge_server.worker import create_worker

pytestmark = pytest.mark.asyncio(loop_scope="module")

each_format = pytest.mark.parametrize("format", sorted(FORMATS))

OUTPUTS = {
    "plain": "4\n",
    "none": "",
    "no line break": "A",
    "line breaks": "\n\n\n \n",
    "spaces": "   x \t",
    "carriage returns": "a\r\nb\r\n",
    "combining": "\u0301\u0338 e\u0301",
    "emoji": "👩‍👩‍👧‍👦",
    "fence": "```\n```output\n```python\n",
    "verdict": "<preference>B</preference>",
    "digits": "10 100 1000",
}
"""Output that merges with the text before or after it if both are encoded together."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[SandboxPool]:
    """A real sandbox of two slots that all tests share."""
    async with SandboxPool(slots=2) as opened:
        yield opened


def turns_of(tokenizer: LocalTokenizer, output: str) -> list[list[int]]:
    """Return the ids of two calls that print the output, and of a verdict."""
    program = f"print(bytes.fromhex('{output.encode().hex()}').decode(), end='')"  # without a stop string
    calls = [f"I check.\n```python\n{program}\n```{blank}```output" for blank in ("\n", "\n\n")]
    return [*map(tokenizer.encode_now, calls), tokenizer.encode_now("So:\n<preference>A</preference>")]


async def rollout_of(engine: object, *, format: str, pool: SandboxPool) -> Rollout:
    profile = Profile(name="judge", context_tokens=8192, rollout_tokens=512, observation_tokens=256, format=format)
    judge = Judge(engine=engine, tools=python_tools(pool), profile=profile)  # type: ignore[arg-type]
    request = build_request("2 + 2?", ["4", "5"], tools="on")
    return await judge.rollout(request, order=(0, 1), session="s", read_probabilities=False)


def parts_of(rollout: Rollout) -> Iterator[tuple[Sequence[int], bool]]:
    """Return the ids of the parts after the prompt, and whether the model wrote them."""
    for turn in rollout.turns:
        yield turn.completion.token_ids, True
        if turn.observation_ids:
            yield turn.observation_ids, False


def check(rollout: Rollout, *, output: str, tokenizer: LocalTokenizer, nfc: bool) -> None:
    """The ids decode to the prompt, the texts of the model and the observations; only ids of the model are in the mask."""
    assert (rollout.num_programs, rollout.label) == (2, "A")
    for turn in rollout.turns[:2]:
        assert turn.result is not None
        assert turn.result.stdout == output
        assert tokenizer.decode(turn.completion.token_ids) == turn.completion.text
        observation = f"\n{turn.output}\n```\n"
        assert list(turn.observation_ids) == tokenizer.encode_now(observation)
        assert tokenizer.decode(turn.observation_ids) == (
            unicodedata.normalize("NFC", observation) if nfc else observation
        )
    parts = list(parts_of(rollout))
    text = "".join(tokenizer.decode(ids) for ids, _ in parts)
    assert tokenizer.decode(rollout.token_ids) == text
    assert rollout.loss_mask == tuple(int(is_model) for ids, is_model in parts for _ in ids)


def check_prompts(engine: ForcedEngine, rollout: Rollout) -> None:
    """Each prompt is the one before, the ids that followed it, and the observation."""
    expected = tuple(rollout.prompt_ids)
    for prompt, turn in zip(engine.prompts, rollout.turns, strict=True):
        assert prompt == expected
        expected += (*turn.completion.token_ids, *turn.observation_ids)
    assert expected == (*rollout.prompt_ids, *rollout.token_ids)


@pytest.mark.slow
@each_family
@each_format
async def test_ids_are_only_appended(
    format: str, family: str, families: Families, forced_model: ForcedModels, pool: SandboxPool
) -> None:
    tokenizer, nfc = families.tokenizer(family), families.vocabulary(family).nfc
    engine = forced_model(family, [])
    for output in OUTPUTS.values():
        turns = turns_of(tokenizer, output)
        engine.turns, engine.prompts = iter(turns), []
        rollout = await rollout_of(engine, format=format, pool=pool)
        assert [list(turn.completion.token_ids) for turn in rollout.turns] == turns, "the ids of the model are kept"
        check(rollout, output=output, tokenizer=tokenizer, nfc=nfc)
        check_prompts(engine, rollout)


@each_family
async def test_a_token_that_reaches_past_the_output_fence_is_split_before_the_observation(
    family: str, families: Families, forced_model: ForcedModels, pool: SandboxPool
) -> None:
    tokenizer = families.tokenizer(family)
    start, longer = token_past_the_fence(tokenizer)
    first, second, verdict = turns_of(tokenizer, "4\n")
    head = tokenizer.decode(first).removesuffix(OUTPUT_FENCE) + start
    first = [*tokenizer.encode_now(head), longer]
    engine = forced_model(family, [first, second, verdict])
    rollout = await rollout_of(engine, format="tirjudge/1", pool=pool)
    completion = rollout.turns[0].completion
    appended = tokenizer.encode_now(OUTPUT_FENCE.removeprefix(start))
    assert completion.text == head + OUTPUT_FENCE.removeprefix(start)
    assert completion.token_ids == (*first[:-1], *appended)
    assert rollout.loss_mask[: len(completion.token_ids)] == (*(1 for _ in first[:-1]), *(0 for _ in appended))
    check_prompts(engine, rollout)


def token_past_the_fence(tokenizer: LocalTokenizer) -> tuple[str, int]:
    """Return the start of the output fence, and a token that has the rest and more, such as "outputs"."""
    for at in range(3, len(OUTPUT_FENCE)):
        rest = OUTPUT_FENCE[at:].encode()
        for token_id, written in tokenizer.bytes_of.items():
            if written.startswith(rest) and written != rest:
                return OUTPUT_FENCE[:at], token_id
    raise AssertionError("no token reaches past the fence")


@pytest.mark.slow
@each_family
async def test_a_served_model_appends_the_same_ids(
    family: str, families: Families, forced_model: ForcedModels, pool: SandboxPool
) -> None:
    tokenizer, nfc = families.tokenizer(family), families.vocabulary(family).nfc
    served = forced_model(family, [])
    async with serve_async(create_worker(served, name=family)) as url:
        engine = VLLMEngine(url)
        try:
            for output in OUTPUTS.values():
                served.turns, served.prompts = iter(turns_of(tokenizer, output)), []
                rollout = await rollout_of(engine, format="tirjudge/2", pool=pool)
                check(rollout, output=output, tokenizer=tokenizer, nfc=nfc)
                check_prompts(served, rollout)
        finally:
            await engine.aclose()
