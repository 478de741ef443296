"""Generated problems: instructions and numeric questions, each with its reference for checking answers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random

from tirjudge_training.data.problems import AnswerCheck, TrainingProblem, id_of
from tirjudge_training.pairs.instructions import reference_of
from tirjudge_training.synthetic.conduct import draw_task
from tirjudge_training.synthetic.instructions import KINDS, InstructionKind, Params, phrasing
from tirjudge_training.synthetic.numeric import NUMERIC
from tirjudge_training.synthetic.vocabulary import TRAINING

SOURCE = "generated"
NUMERIC_SHARE = 0.3


def draw_problems(count: int, *, seed: int) -> list[TrainingProblem]:
    """Generate `count` distinct problems: instructions (one or two per prompt) and numeric questions."""
    return list(islice(_distinct(Random(seed)), count))


def _distinct(rng: Random) -> Iterator[TrainingProblem]:
    known: set[str] = set()
    while True:
        problem = _numeric(rng) if rng.random() < NUMERIC_SHARE else _instructions(rng)
        if problem.id not in known:
            known.add(problem.id)
            yield problem


def _instructions(rng: Random) -> TrainingProblem:
    kinds = rng.sample(KINDS, rng.choice((1, 1, 2)))
    drawn = [(kind, kind.draw(rng, TRAINING)) for kind in kinds]
    request = draw_task(rng=rng, vocabulary=TRAINING)
    prompt = f"{request}\n{' '.join(_instruction_text(kind, params, rng=rng) for kind, params in drawn)}"
    reference = reference_of([(kind.name, params) for kind, params in drawn], request=request)
    return _problem(prompt, check=AnswerCheck.INSTRUCTIONS, reference=reference, task="instructions")


def _instruction_text(kind: InstructionKind, params: Params, *, rng: Random) -> str:
    sentence = phrasing(kind, params, rng=rng, held_out=False)
    quoted = [f'"{text}"' for text in params.quotes]
    joined = " and ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)
    sentence = sentence.replace("{qs}", joined).replace("{q}", joined).replace("{n}", str(params.number))
    return sentence[:1].upper() + sentence[1:]


def _numeric(rng: Random) -> TrainingProblem:
    kind = rng.choice(NUMERIC)
    numbers = kind.draw(rng)
    shown = {"name": rng.choice(TRAINING.names), "noun": rng.choice([w for w in TRAINING.nouns if w.isalpha()])}
    question = kind.questions.pick(rng=rng, held_out=False).format(*numbers, **shown)
    return _problem(question, check=AnswerCheck.MATH, reference=f"{kind.answer(numbers):.10g}", task="math")


def _problem(prompt: str, *, check: AnswerCheck, reference: str, task: str) -> TrainingProblem:
    return TrainingProblem(
        id=id_of(prompt, reference),
        prompt=prompt,
        check=check,
        task=task,
        source=SOURCE,
        licence="",
        verifiable=True,
        reference=reference,
    )
