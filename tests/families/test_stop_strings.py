"""Stop strings that real vocabularies spell with several tokens, and tokens that reach past them.

The model is forced to write given tokens. The engines are real: the embedded engine, and the HTTP engine with the mini
worker, which returns whole tokens as vLLM does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice

import pytest

from tests.families.models import Families, ForcedModels, each_family
from tests.servers import serve_async
from tirjudge.engines.base import Engine
from tirjudge.engines.tokenization import LocalTokenizer
from tirjudge.engines.vllm import VLLMEngine
from tirjudge.formats import FORMATS, format_named
from tirjudge.tools.python import python_tools
from tirjudge.types import MODEL_MODES, Completion, Sampling
from tirjudge_sandbox import SandboxPool
from tirjudge_server.worker import create_worker

PROMPT = (7, 8, 9)
BEFORE = "判 <"
AFTER = " more"


def stop_strings() -> tuple[str, ...]:
    """The stop strings of all formats."""
    tools = python_tools(SandboxPool(slots=1))
    stops = [format_named(name).stops(mode, tools=tools) for name in FORMATS for mode in MODEL_MODES]
    return tuple(sorted({text for each in stops for text in (*each.verdict, *each.call)}))


def test_formats_have_stop_strings() -> None:
    assert {"</preference>", "</score>", "```output"} <= set(stop_strings())


def spellings(tokenizer: LocalTokenizer, stop: str) -> Iterator[tuple[int, ...]]:
    """Return ways to spell a stop string: as the tokenizer does, one token per character, and split at every place."""
    yield tuple(tokenizer.encode_now(stop))
    yield tuple(token for character in stop for token in tokenizer.encode_now(character))
    for at in range(1, len(stop)):
        yield (*tokenizer.encode_now(stop[:at]), *tokenizer.encode_now(stop[at:]))


class TokensByText:
    """Finds the tokens of a vocabulary that begin or end with given bytes."""

    def __init__(self, tokenizer: LocalTokenizer) -> None:
        self._forward = sorted((written, i) for i, written in tokenizer.bytes_of.items())
        self._backward = sorted((written[::-1], i) for i, written in tokenizer.bytes_of.items())

    def beginning_with(self, text: str) -> list[int]:
        """Return the ids of longer tokens that begin with the text, those that end inside a character first."""
        found = list(_with_prefix(self._forward, text.encode()))
        found.sort(key=lambda token: (token[0].decode(errors="ignore").encode() == token[0], token))
        return [i for _, i in found]

    def ending_with(self, text: str) -> list[int]:
        """Return the ids of longer tokens that end with the text."""
        return [i for _, i in _with_prefix(self._backward, text.encode()[::-1])]


def _with_prefix(tokens: Sequence[tuple[bytes, int]], prefix: bytes) -> Iterator[tuple[bytes, int]]:
    for token in islice(tokens, bisect_left(tokens, (prefix, -1)), None):
        if not token[0].startswith(prefix):
            return
        if token[0] != prefix:
            yield token


def answers(tokenizer: LocalTokenizer, stop: str, *, tokens: TokensByText, per_place: int) -> Iterator[tuple[int, ...]]:
    """Return the ids of answers that contain the stop string in different tokens: split at each place, in tokens that
    go on after it, and in tokens that begin before it.

    Args:
        tokenizer: tokenizer of the family.
        stop: the stop string.
        tokens: its tokens.
        per_place: maximum number of different tokens across each end of the stop string, per place where they begin or
            end.
    """
    before, after = tokenizer.encode_now(BEFORE), tokenizer.encode_now(AFTER)
    for spelled in spellings(tokenizer, stop):
        yield (*before, *spelled, *after)
    for at in range(1, len(stop)):
        head, rest = tokenizer.encode_now(stop[:at]), tokenizer.encode_now(stop[at:])
        for token in tokens.beginning_with(stop[at:])[:per_place]:
            yield (*before, *head, token, *after)
        for token in tokens.ending_with(stop[:at])[:per_place]:
            yield (*before, token, *rest, *after)


async def written(engine: Engine, ids: Sequence[int], *, stop: str) -> Completion:
    others = tuple(other for other in stop_strings() if other != stop)
    sampling = Sampling(max_tokens=len(ids), temperature=0.0, stop=(*others, stop), logprobs=True)
    return await engine.generate(PROMPT, sampling=sampling, session="s")


def check(completion: Completion, ids: Sequence[int], *, stop: str, tokenizer: LocalTokenizer) -> None:
    """The text ends with the stop string, the ids decode to exactly the text, and ids of the model are kept."""
    full = tokenizer.decode(ids)
    assert completion.stop == stop
    assert completion.text == full[: full.index(stop) + len(stop)]
    assert tokenizer.decode(completion.token_ids) == completion.text
    num_kept = len(completion.token_ids) - completion.num_appended
    assert completion.token_ids[:num_kept] == tuple(ids[:num_kept])
    assert len(completion.logprobs) == len(completion.token_ids)
    assert set(completion.logprobs[num_kept:]) <= {0.0}


@pytest.mark.slow
@each_family
async def test_a_split_stop_string_ends_the_turn(family: str, families: Families, forced_model: ForcedModels) -> None:
    await check_stop_strings(forced_model, family, tokenizer=families.tokenizer(family), per_place=1)


@pytest.mark.slow
@each_family
async def test_a_stop_string_in_many_tokens_ends_the_turn(
    family: str, families: Families, forced_model: ForcedModels
) -> None:
    await check_stop_strings(forced_model, family, tokenizer=families.tokenizer(family), per_place=8)


async def check_stop_strings(
    forced_model: ForcedModels, family: str, *, tokenizer: LocalTokenizer, per_place: int
) -> None:
    tokens = TokensByText(tokenizer)
    num_past = 0
    for stop in stop_strings():
        all_ids = list(dict.fromkeys(answers(tokenizer, stop, tokens=tokens, per_place=per_place)))
        assert len(all_ids) > 8, "the spellings differ"
        engine = forced_model(family, all_ids)
        for ids in all_ids:
            completion = await written(engine, ids, stop=stop)
            check(completion, ids, stop=stop, tokenizer=tokenizer)
            num_past += completion.num_appended > 0
    assert num_past >= len(stop_strings()), "some tokens reach past the stop string"


@pytest.mark.slow
@each_family
async def test_a_split_stop_string_ends_the_turn_over_http(
    family: str, families: Families, forced_model: ForcedModels
) -> None:
    tokenizer = families.tokenizer(family)
    tokens = TokensByText(tokenizer)
    for stop in stop_strings():
        all_ids = list(dict.fromkeys(answers(tokenizer, stop, tokens=tokens, per_place=4)))
        worker = create_worker(forced_model(family, all_ids), name=family)
        async with serve_async(worker) as url:
            engine = VLLMEngine(url)
            try:
                for ids in all_ids:
                    check(await written(engine, ids, stop=stop), ids, stop=stop, tokenizer=tokenizer)
            finally:
                await engine.aclose()


@each_family
async def test_part_of_a_stop_string_ends_no_turn(family: str, families: Families, forced_model: ForcedModels) -> None:
    tokenizer = families.tokenizer(family)
    text = "</preference ></ score></pre\nference>``` output``" + "".join(stop[:-1] for stop in stop_strings())
    ids = tokenizer.encode_now(text)
    completion = await written(forced_model(family, [ids]), ids, stop=stop_strings()[0])
    assert (completion.stop, completion.finish_reason, completion.text) == (None, "length", text)
    assert completion.token_ids == tuple(ids)
