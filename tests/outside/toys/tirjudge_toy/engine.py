"""A toy engine, `toy:SCORE`: counts the words of both responses with the toy tool and chooses the longer one. A single
response gets SCORE."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.model import EngineKind, EngineOptions, Model
from tirjudge.profile import Profile


def _label(sequence: str, *, score: str) -> str:
    if "TOY pointwise" in sequence:
        return score
    counts = [int(part.split()[0]) for part in sequence.split("RESULT:")[1:]]
    return "A" if counts[0] >= counts[1] else "B"


def _next(sequence: str, *, score: str) -> str:
    num_seen = sequence.count("RESULT:")
    if "TOY pairwise" in sequence and num_seen < 2:
        return f"I count.\nCALL words: {'ab'[num_seen]}\nRESULT:"
    return f"VERDICT: {_label(sequence, score=score)};"


@asynccontextmanager
async def _open(address: str, options: EngineOptions) -> AsyncIterator[Model]:
    if address not in map(str, range(1, 10)):
        raise ValueError(f"toy:{address} given; give a score from 1 to 9, such as toy:7")
    engine = ScriptedEngine(
        lambda sequence: _next(sequence, score=address),
        label_probs=lambda sequence: {_label(sequence, score=address): 0.9},
    )
    yield Model(engine=engine, profile=Profile(name="toy-judge"))


ENGINE = EngineKind(name="toy", address="SCORE", open=_open)
