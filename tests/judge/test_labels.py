"""Probabilities of labels as text, compared with a sum over all token sequences of small uneven vocabularies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.table_model import PIECES, RandomModel, TableTokenizer
from tirjudge.engines.probing import ProbingTokenizer
from tirjudge.formats import format_named
from tirjudge.labels import place_of_labels, read_labels
from tirjudge.loop import RolloutSpec, run_rollout
from tirjudge.profile import Profile
from tirjudge.tools.base import ToolContext
from tirjudge.types import Completion, Mode, Rollout, Sampling

TAG = ["<pre", "ference", "</", "score"]
LETTERS = ("A", "B", "C")
SCORES = tuple(str(score) for score in range(1, 11))


def summed(model: RandomModel, prefix: Sequence[int], label: str, *, opening: str, labels: Sequence[str]) -> float:
    """Return the probability of a label: the sum over all token sequences that spell it and no longer label."""
    longer = [each for each in labels if each != label and each.startswith(label)]

    def spell(ids: tuple[int, ...], rest: str, continued: Sequence[str]) -> float:
        row = model.logprobs(ids)
        total = 1.0 if not rest else 0.0
        for token_id, token in enumerate(model.tokenizer.tokens):
            if rest and rest.startswith(token):
                left = rest[len(token) :]
                total += math.exp(row[token_id]) * spell((*ids, token_id), left, continued)
            elif rest and (rest + "</").startswith(token):
                total += math.exp(row[token_id])
            elif not rest and any((each[len(label) :] + "</").startswith(token) for each in continued):
                total -= math.exp(row[token_id])
        return total

    return spell(tuple(prefix), opening + label, longer)


VOCABULARIES = {
    "characters": PIECES,
    "every letter joined": [*PIECES, *TAG, ">A", ">B", ">C"],
    "one letter joined": [*PIECES, *TAG, ">A"],
    "numbers joined": [*PIECES, *TAG, "10", ">1", ">10", ">7"],
    "closing joined": [*PIECES, *TAG, ">B</", "A<", "10</", "1<"],
    "tag joined": [*PIECES, "ference>B", "ference>", "score>1", "<pre", "score"],
    "line break joined": [*PIECES, *TAG, ">\n", "\nA", ">A", "\n1"],
}


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("between", ["", "\n", " \n"])
@pytest.mark.parametrize(("tag", "labels"), [("preference", LETTERS), ("score", SCORES)])
async def test_probabilities_equal_the_sum_over_all_token_sequences(
    vocabulary: str, between: str, tag: str, labels: tuple[str, ...]
) -> None:
    tokenizer = TableTokenizer(VOCABULARIES[vocabulary])
    favored = {">", "\n", ">\n", *labels, *(f">{label}" for label in labels), "\nA", "ference>B", "0"}
    model = RandomModel(tokenizer, favored=favored)
    text = f"I think: <{tag}>{between}{labels[0]}</{tag}>"
    ids = tokenizer.now(text)
    opens = text.index("<")
    opened = opens + len(tag) + 2
    start = opened + len(between)
    place = await place_of_labels(
        ids, text, opens=opens, opened=opened, start=start, labels=labels, closing=f"</{tag}>", tokenizer=tokenizer
    )
    assert place is not None
    prefix = ids[: place.num_ids]
    written = "".join(tokenizer.tokens[i] for i in prefix)
    assert written + place.opening == text[:start]
    assert len(written) <= opened
    read = await read_labels(
        prefix, labels=labels, opening=place.opening, closing=place.closing, engine=model, session="s"
    )
    assert list(read) == list(labels)
    for label in labels:
        expected = math.log(summed(model, prefix, label, opening=place.opening, labels=labels))
        assert read[label] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    ("vocabulary", "kept"),
    [("characters", ">"), ("every letter joined", "ference"), ("tag joined", "<pre"), ("closing joined", "ference")],
)
async def test_reading_starts_at_the_last_boundary_that_no_token_crosses(vocabulary: str, kept: str) -> None:
    tokenizer = TableTokenizer(VOCABULARIES[vocabulary])
    text = "<preference>A</preference>"
    ids = tokenizer.now(text)
    place = await place_of_labels(
        ids, text, opens=0, opened=12, start=12, labels=LETTERS, closing="</preference>", tokenizer=tokenizer
    )
    assert place is not None
    assert tokenizer.tokens[ids[place.num_ids - 1]] == kept


async def test_a_vocabulary_that_joins_nothing_needs_one_read() -> None:
    model = RandomModel(TableTokenizer(PIECES), favored={"A", "B"})
    await read_labels([1, 2], labels=("A", "B"), closing="</", engine=model, session="s")
    assert model.num_reads == 1


async def test_joined_labels_need_at_most_one_more_read() -> None:
    model = RandomModel(TableTokenizer(VOCABULARIES["every letter joined"]), favored={">A", ">B", ">"})
    await read_labels([1, 2], labels=("A", "B"), opening=">", closing="</", engine=model, session="s")
    assert model.num_reads == 2


async def test_a_negligible_token_sequence_is_not_read() -> None:
    class Certain(RandomModel):
        def logprobs(self, ids: Sequence[int]) -> list[float]:
            known = {">A": 0.6, ">B": 0.4 - 1e-7, ">": 1e-9}
            return [math.log(known.get(token, 1e-12)) for token in self.tokenizer.tokens]

    model = Certain(TableTokenizer(VOCABULARIES["every letter joined"]), favored=())
    read = await read_labels([1, 2], labels=("A", "B"), opening=">", closing="</", engine=model, session="s")
    assert model.num_reads == 1
    assert math.exp(read["A"]) == pytest.approx(0.6)


async def test_ids_that_do_not_match_the_text_have_no_place() -> None:
    tokenizer = TableTokenizer(PIECES)
    place = await place_of_labels(
        tokenizer.now("something different"),
        "<score>7</score>",
        opens=0,
        opened=7,
        start=7,
        labels=SCORES,
        closing="</score>",
        tokenizer=tokenizer,
    )
    assert place is None


async def roll(model: RandomModel) -> Rollout:
    spec = RolloutSpec(
        mode=Mode.PAIRWISE,
        labels=("A", "B"),
        format=format_named("tirjudge/1"),
        engine=model,
        tools=(),
        context=ToolContext(),
        profile=Profile(),
        sampling=Sampling(max_tokens=0),
        session="s",
    )
    return await run_rollout(model.tokenizer.now("prompt"), spec)


async def test_the_ids_that_the_model_wrote_are_never_encoded_again() -> None:
    class Spelled(RandomModel):
        """Writes the tag character by character, which the tokenizer would encode to fewer tokens."""

        async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
            completion = await super().generate(token_ids, sampling=sampling, session=session)
            if sampling.allowed_token_ids is not None:
                self.read_from = [self.tokenizer.tokens[i] for i in token_ids]
                return completion
            return replace(completion, token_ids=tuple(map(self.tokenizer.tokens.index, completion.text)))

    tokenizer = TableTokenizer(VOCABULARIES["every letter joined"])
    model = Spelled(tokenizer, favored={">A", ">B"}, texts=["Well. <preference>B</preference>"])
    rollout = await roll(model)
    assert rollout.label == "B"
    assert model.read_from[-len("<preference>") :] == [*"<preference", ">"]  # the second read, after the token ">"
    head = [tokenizer.tokens.index(character) for character in "Well. <preference"]
    prefix = [*rollout.prompt_ids, *head]
    for name, value in rollout.label_logprobs.items():
        expected = summed(model, prefix, name, opening=">", labels=("A", "B"))
        assert value == pytest.approx(math.log(expected), abs=1e-3)


async def test_a_forced_verdict_compares_labels_whatever_tokens_spell_them() -> None:
    tokenizer = TableTokenizer(VOCABULARIES["one letter joined"])
    rollout = await roll(RandomModel(tokenizer, favored={">A", ">", "B"}, texts=["I cannot say."]))
    assert rollout.forced
    text = "".join(tokenizer.tokens[i] for i in rollout.forced_ids)
    assert text == f"\n<preference>{rollout.label}</preference>"
    assert all(value > math.log(0.01) for value in rollout.label_logprobs.values())


class Probed(ProbingTokenizer):
    """A table tokenizer that can only encode and decode; with `space`, it adds a space before a text as SentencePiece
    tokenizers do."""

    def __init__(self, table: TableTokenizer, *, space: bool) -> None:
        super().__init__()
        self.table = table
        self.space = space

    async def encode(self, text: str) -> list[int]:
        return self.table.now(" " * self.space + text)

    async def decode(self, token_ids: Sequence[int]) -> str:
        text = "".join(self.table.tokens[i] for i in token_ids)
        return text.removeprefix(" ") if self.space else text


@pytest.mark.parametrize("space", [False, True])
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
async def test_probing_finds_the_tokens_of_a_vocabulary(vocabulary: str, space: bool) -> None:
    table = TableTokenizer([*VOCABULARIES[vocabulary], " A", " >"])
    texts = [">", ">A", ">B", "A", "10", "1", ">10", "</", "A</", "ference>", "no token"]
    probed = Probed(table, space=space)
    assert await probed.tokens_of(texts) == {text: tuple(ids) for text, ids in (await table.tokens_of(texts)).items()}
    ids = table.now("<preference>A</preference>")
    assert await probed.token_bytes(ids) == await table.token_bytes(ids)
