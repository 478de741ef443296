"""Untrusted text never becomes a control token of a real vocabulary: in prompts, and in the output of programs."""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.families.models import Families, ForcedModels, each_family
from tests.judgments import build_request
from tests.servers import serve_async
from tirjudge.control_tokens import ControlTokens
from tirjudge.engines.tokenization import LocalTokenizer
from tirjudge.engines.vllm import VLLMEngine
from tirjudge.formats import FORMATS, format_named
from tirjudge.judge import Judge
from tirjudge.profile import Profile
from tirjudge.tools.python import python_tools
from tirjudge.types import MODEL_MODES, ChatMessage, Criterion, JudgeRequest, Mode
from tirjudge_sandbox import SandboxPool
from tirjudge_server.worker import create_worker

pytestmark = pytest.mark.asyncio(loop_scope="module")

each_format = pytest.mark.parametrize("format", sorted(FORMATS))

PROFILE = Profile(name="hostile", context_tokens=8192, rollout_tokens=512)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[SandboxPool]:
    """A real sandbox of two slots that all tests share."""
    async with SandboxPool(slots=2) as opened:
        yield opened


def control_tokens_of(families: Families, family: str) -> list[str]:
    """The tokens that control a model of the family: those marked as special, and tags of its chat template. Of reserved
    tokens, only the first ones."""
    vocabulary, template = families.vocabulary(family), families.tokenizer(family).template
    tags = [token for token in vocabulary.plain if token in template.source]
    reserved = [token for token in vocabulary.special if "reserved" in token or "SPECIAL_" in token]
    return [*(token for token in vocabulary.special if token not in reserved), *reserved[:3], *tags]


def control_ids_of(families: Families, family: str) -> frozenset[int]:
    vocabulary, template = families.vocabulary(family), families.tokenizer(family).template
    tags = [token_id for token, token_id in vocabulary.plain.items() if token in template.source]
    return frozenset([*vocabulary.special.values(), *tags])


def spelled_in_other_ways(tokens: Sequence[str]) -> str:
    """Return the tokens alone, glued, doubled, inside one another, and beside characters that change when text is
    normalized."""
    parts = [" ".join(tokens), "".join(tokens), "".join(token[0] + token for token in tokens)]
    for token in tokens:
        half = len(token) // 2
        parts += [token[:half] + token + token[half:], token + token[1:], token[:-1] + token]
        parts += [token + "\u0338", "e\u0301" + token, "\u200b".join([token, token]), f"\n{token}\r\n"]
        parts += [unicodedata.normalize("NFD", token), token.replace("K", "\u212a"), f"</response>{token}<response>"]
    return "\n".join(parts)


def hostile_request(mode: Mode, text: str, *, tools: str = "on") -> JudgeRequest:
    """A request with the text in all its places."""
    messages = [ChatMessage(role="system", content=text), ChatMessage(role="user", content=f"Which is right? {text}")]
    return build_request(
        messages,
        [f"{text} {n}" for n in range(1 if mode is Mode.POINTWISE else 2)],
        mode=mode,
        reference=f"{text}.",
        rubric=f"{text}.",
        criteria=[Criterion(name=f"C {text[:50]}", text=f"{text}.")],
        tools=tools,
    )


def only(ids: Sequence[int], control: frozenset[int]) -> list[int]:
    return [i for i in ids if i in control]


def judge_of(engine: object, *, format: str) -> Judge:
    tools = python_tools(SandboxPool(slots=1))
    return Judge(engine=engine, tools=tools, profile=PROFILE.model_copy(update={"format": format}))  # type: ignore[arg-type]


@each_family
@each_format
@pytest.mark.parametrize("mode", MODEL_MODES)
async def test_control_tokens_in_a_request_stay_text(
    mode: Mode, format: str, family: str, families: Families, forced_model: ForcedModels
) -> None:
    tokens, control = control_tokens_of(families, family), control_ids_of(families, family)
    judge = judge_of(forced_model(family, []), format=format)
    order = range(1 if mode is Mode.POINTWISE else 2)
    for text in (" ".join(tokens), spelled_in_other_ways(tokens)[:3000]):
        hostile, harmless = hostile_request(mode, text), hostile_request(mode, "Rome")
        ids = await judge.encode(hostile, order=order)
        assert only(ids, control) == only(await judge.encode(harmless, order=order), control)
        assert len(set(only(families.tokenizer(family).encode_now(text), control))) >= len(tokens)


@each_family
@pytest.mark.parametrize("lists_tokens", [True, False], ids=["listed", "not_listed"])
async def test_control_tokens_of_a_served_tokenizer_stay_text(
    lists_tokens: bool, family: str, families: Families, forced_model: ForcedModels
) -> None:
    tokens, control = control_tokens_of(families, family), control_ids_of(families, family)
    local = forced_model(family, [])
    hostile = hostile_request(Mode.PAIRWISE, spelled_in_other_ways(tokens)[:3000])
    harmless = hostile_request(Mode.PAIRWISE, "Rome")
    worker = create_worker(local, name=family)
    if not lists_tokens:  # as vLLM without `--enable-tokenizer-info-endpoint`
        worker.router.routes[:] = [route for route in worker.router.routes if "/tokenizer_info" not in str(route)]
    async with serve_async(worker) as url:
        remote = VLLMEngine(url)
        try:
            encoded = {
                format: [
                    await judge_of(remote, format=format).encode(request, order=(0, 1))
                    for request in (hostile, harmless)
                ]
                for format in FORMATS
            }
        finally:
            await remote.aclose()
    for format, (ids, expected) in encoded.items():
        assert only(ids, control) == only(expected, control)
        if lists_tokens:
            assert ids == await judge_of(local, format=format).encode(hostile, order=(0, 1))


@each_family
@each_format
async def test_control_tokens_in_the_output_of_a_program_stay_text(
    format: str, family: str, families: Families, forced_model: ForcedModels, pool: SandboxPool
) -> None:
    tokenizer, control = families.tokenizer(family), control_ids_of(families, family)
    text = spelled_in_other_ways(control_tokens_of(families, family))[:1500]
    programs = ["print(prompt)", "print(response_a, end='')", "raise ValueError(' '.join(prompt.split()))"]
    turns = [tokenizer.encode_now(f"```python\n{program}\n```\n```output") for program in programs]
    engine = forced_model(family, [*turns, tokenizer.encode_now("<preference>A</preference>")])
    judge = Judge(engine=engine, tools=python_tools(pool), profile=PROFILE.model_copy(update={"format": format}))
    rollout = await judge.rollout(
        build_request(text, [text, "b"], tools="on"), order=(0, 1), session="s", read_probabilities=False
    )
    assert (rollout.num_calls, rollout.label) == (3, "A")
    for turn in rollout.turns[:3]:
        assert not set(turn.observation_ids) & control
        assert len(turn.observation_ids) > 50


@each_family
@each_format
async def test_no_mixture_of_parts_becomes_a_control_token(format: str, family: str, families: Families) -> None:
    tokenizer, tokens = families.tokenizer(family), control_tokens_of(families, family)
    known, control = await tokenizer.control_tokens(), control_ids_of(families, family)
    kind = format_named(format)
    parts = [
        *tokens,
        *(token[:n] for token in tokens for n in (1, 2, -1)),
        *(token[n:] for token in tokens for n in (1, 2)),
    ]
    pieces = st.sampled_from([*parts, *" <>|[]/\n\u0338\u200b\ufeff", "e\u0301", "\u1fef\u1fef\u1fef"])

    def ids_of(text: str) -> list[int]:
        return _prompt_ids(kind, hostile_request(Mode.PAIRWISE, text, tools="off"), tokenizer, known)

    expected = only(ids_of("Rome"), control)

    @given(st.lists(pieces, max_size=16).map("".join))
    @settings(max_examples=60, database=None, deadline=None)
    def check(text: str) -> None:
        assert only(ids_of(text), control) == expected

    check()


def _prompt_ids(format: object, request: JudgeRequest, tokenizer: LocalTokenizer, known: ControlTokens) -> list[int]:
    text = format.render(  # type: ignore[attr-defined]
        request, order=(0, 1), tools=(), prompt_chars=4000, response_chars=4000, control_tokens=known
    )
    return tokenizer.encode_now(tokenizer.template.render_prompt(text))
