"""Compute figures of benchmarks with the authors' programs and with ours, on the same decisions.

    python benchmarks/official_figures.py CHECKOUTS --out benchmarks/results/official_figures.json

CHECKOUTS is as in `authors_prompts.py`, whose warning also applies here: the authors' code runs. It is read at the commits
that are named below. Rows and decisions are generated from a seed. In RMB, the rows are those of the repository, and the
scores are hashes of the responses.

Stand-ins replace vLLM, jsonlines, torch, and clients of the hub. AlpacaEval's regression for length-controlled win rates is
not imported. Two figures are not those of the authors' programs: the area under the ROC curve of VerifyBench is compared with
SciPy, and RMB with the rule in a few lines, because `eval/scripts/my_run_rm.py` needs a model, and no program for best of N
is published.

The exit status is 1 if a figure differs without a known reason.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from types import ModuleType, SimpleNamespace
from typing import Annotated, Any

import pandas as pd  # before the authors' code, so that it is loaded once
import typer
from authors_code import checked_out, imported, module_of, package_of, present_files, reward_bench_module
from crosscheck_figures import Check, compared
from reporting import Out, report
from scipy.stats import mannwhitneyu

from tirjudge.right import Decision
from tirjudge.types import Mode
from tirjudge_harness.benchmark import Benchmark
from tirjudge_harness.benchmarks import alpacaeval_human, codejudgebench, mrewardbench, mtbench_human, rmb, verifybench
from tirjudge_harness.benchmarks.rewardbench import SECTIONS
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.evaluation import Evaluation, evaluate
from tirjudge_harness.examples import Example
from tirjudge_harness.protocols import OFFICIAL
from tirjudge_harness.sources import load_examples

SEED = 7
EVEN_VOTES = "the authors' program draws the majority of even votes, and here the expected value is taken"
CLIENTS = frozenset({"datasets", "huggingface_hub", "torch", "transformers"})

Row = dict[str, Any]
Decide = Callable[[Example], Sequence[Decision]]


def loaded(benchmark: Benchmark, data: Path, *parts: str) -> list[Example]:
    """Load examples of files. All rows must be valid."""

    def refuse(row: object) -> None:
        raise ValueError(str(row))

    return load_examples(benchmark, data=data, parts=parts, on_bad=refuse)


def made(benchmark: Benchmark, rows: Sequence[Row], part: str) -> list[Example]:
    """Convert generated rows to examples."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{part}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return loaded(benchmark, file, part)


def evaluated(benchmark: Benchmark, examples: Sequence[Example], decide: Decide, mode: Mode) -> Evaluation:
    """Evaluate decisions by the official protocol."""
    judged = [JudgedExample(outline=one.outline, mode=mode, decisions=tuple(decide(one))) for one in examples]
    return evaluate(benchmark, judged, mode=mode, protocol=OFFICIAL)


def values(evaluation: Evaluation) -> dict[str, float]:
    """Return the value of each figure that has one."""
    return {figure.name: figure.value for figure in evaluation.figures if figure.value is not None}


def mt_bench(checkouts: Path, rng: random.Random) -> Iterator[Check]:
    """Votes of people on pairs of four models, and one verdict of a judge on each pair and turn."""
    people: list[Row] = []
    verdicts: dict[tuple[int, str, str, int], Row] = {}
    for question, turn in ((question, turn) for question in range(60) for turn in (1, 2)):
        for _ in range(rng.randint(1, 5)):
            first, second = rng.sample(("gpt-4", "claude-v1", "vicuna", "alpaca"), 2)
            pair = {"question_id": question, "turn": turn, "model_a": first, "model_b": second}
            rater = rng.choice(("expert_1", "expert_2", "author_1"))
            vote = {"winner": rng.choice(("model_a", "model_b", "tie")), "judge": rater}
            shown = {f"conversation_{key}": _conversation(question, pair[f"model_{key}"]) for key in "ab"}
            people.append(pair | vote | shown)
            swapped = pair | ({"model_a": second, "model_b": first} if rng.random() < 0.5 else {})
            winner = rng.choice(("model_a", "model_b", "tie", "tie (inconsistent)"))
            key = (question, min(first, second), max(first, second), turn)
            verdicts.setdefault(key, swapped | {"winner": winner, "judge": ["gpt-4", "pair-v2"]})

    def decide(example: Example) -> Sequence[Decision]:
        question, first, second, turn = example.outline.id.split("/")
        row = verdicts[int(question), first, second, int(turn.removeprefix("turn-"))]
        if row["winner"] == "tie":
            return [Decision(shown=shown, tied=True) for shown in ((0, 1), (1, 0))]
        if row["winner"] == "tie (inconsistent)":
            return [Decision(shown=(0, 1), best=0), Decision(shown=(1, 0), best=1)]
        best = (first, second).index(row[row["winner"]])
        return [Decision(shown=shown, best=best) for shown in ((0, 1), (1, 0))]

    benchmark = mtbench_human.BENCHMARK
    ours = values(evaluated(benchmark, made(benchmark, people, "human"), decide, Mode.PAIRWISE))
    file = "fastchat/llm_judge/compute_agreement.py"
    with checked_out(
        checkouts, "lm-sys/FastChat", "0e6d3e4beaab66f4d3f93db72541a4abab8af28d", file, unneeded=()
    ) as root:
        authors = module_of(root / file)
        turns = authors.get_mt_bench_votes_data([people, list(verdicts.values())])
        for title, judge in (("agreement", "gpt4-pair"), ("experts", "human")):
            for turn, votes in enumerate(turns, start=1):
                for ties, ban in (("with", ()), ("without", ("tie",))):
                    agreed, total = authors.get_mt_bench_agreement(votes, judge, "human", ban=ban)
                    name = f"{title}, turn {turn}, {ties} ties"
                    yield compared(benchmark.name, name, published=agreed / total, ours=ours[name])


def _conversation(question: int, model: str) -> list[Row]:
    return [
        {"role": role, "content": f"{text}, turn {turn}"}
        for turn in (1, 2)
        for role, text in (("user", f"question {question}"), ("assistant", f"{model} on {question}"))
    ]


def alpaca_eval(checkouts: Path, rng: random.Random) -> Iterator[Check]:
    """Three to five votes on each of 80 pairs, and a verdict of a judge: first without even votes, then with them."""
    benchmark = alpacaeval_human.BENCHMARK
    paths = tuple(
        f"src/alpaca_eval/{name}" for name in ("analyze.py", "constants.py", "types.py", "utils.py", "metrics")
    )
    for with_even in (False, True):
        votes = [_votes(rng, with_even=with_even) for _ in range(80)]
        pairs = [{"instruction": f"i{index}", "output_1": "first", "output_2": "second"} for index in range(len(votes))]
        rows = [
            pair | {"preference": vote, "annotator_index": index}
            for pair, each in zip(pairs, votes, strict=True)
            for index, vote in enumerate(each)
        ]
        verdicts = {pair["instruction"]: rng.choice((1, 2, 1.5)) for pair in pairs}

        def decide(example: Example, verdicts: dict[str, float] = verdicts) -> Sequence[Decision]:
            verdict = verdicts[str(example.prompt)]
            if verdict == 1.5:
                return [Decision(shown=(0, 1), tied=True)]
            return [Decision(shown=(0, 1), best=int(verdict == 2))]

        part = next(iter(benchmark.sources))
        ours = values(evaluated(benchmark, made(benchmark, rows, part), decide, Mode.PAIRWISE))
        commit = "cd543a149df89434d8a54582c0151c0b945c3d20"
        unneeded = CLIENTS | {"pkg_resources"}
        with checked_out(checkouts, "tatsu-lab/alpaca_eval", commit, *paths, unneeded=unneeded) as root:
            package_of("alpaca_eval", root / "src/alpaca_eval")
            # `metrics/__init__.py` goes on without this module, which needs more libraries.
            sys.modules["alpaca_eval.metrics.glm_winrate"] = None  # type: ignore[assignment]
            analyzer = imported("alpaca_eval.analyze").Analyzer(pd.DataFrame(rows), None, n_annotators=4)
            judge = pd.DataFrame([pair | {"preference": verdicts[pair["instruction"]]} for pair in pairs])
            theirs = analyzer.agreement_of_annotations(judge, n_majority_vote_1=1)["score"]
            people = analyzer.agreement_of_annotations(
                "gold_crossannotations", annotations_2=None, n_majority_vote_1=1, is_same_annotator=True
            )["score"]
        counted = [each[:4] for each in votes if len(each) >= 4]
        # A drawn majority moves the agreement of a pair by at most 0.5.
        most = 0.5 * fmean(each.count(1) == 2 for each in counted)
        title = "with even votes" if with_even else "without even votes"
        agreement = ours["human agreement"]
        reason = EVEN_VOTES if abs(agreement - theirs) <= most else ""
        yield compared(
            benchmark.name, f"human agreement, {title}", published=float(theirs), ours=agreement, reason=reason
        )
        yield compared(
            benchmark.name, f"agreement of humans, {title}", published=float(people), ours=ours["agreement of humans"]
        )


def _votes(rng: random.Random, *, with_even: bool) -> list[int]:
    """Draw the votes on a pair: 1 for the first response, 2 for the second."""
    likely = rng.choice((1, 2))
    while True:
        votes = rng.choices((likely, 3 - likely), weights=(3, 1), k=rng.choice((3, 4, 4, 4, 5)))
        if with_even or votes[:4].count(1) != 2:
            return votes


def verify_bench(checkouts: Path, rng: random.Random) -> Iterator[Check]:
    """Scores of 200 answers, some without a verdict. The authors' judge says Yes where the score is 6 or more."""
    rows = [
        {
            "question": f"q{index}",
            "answer": f"{index}",
            "completion": f"c{index}",
            "gold_correct": rng.random() < 0.5,
            "answer_type": rng.choice(("number", "choice", "text")),
            "answer_subtype": rng.choice(("integer", "other")),
        }
        for index in range(200)
    ]
    scores = {row["question"]: rng.choice((1, 3, 5, 6, 7, 10, None)) for row in rows}

    def decide(example: Example) -> Sequence[Decision]:
        return [Decision(shown=(0,), score=scores[str(example.prompt)])]

    benchmark = verifybench.BENCHMARK
    evaluation = evaluated(benchmark, made(benchmark, rows, "verify_bench"), decide, Mode.POINTWISE)
    ours = values(evaluation)
    said = ["unclear" if score is None else "Yes" if score >= 6 else "No" for score in scores.values()]
    outputs = [SimpleNamespace(outputs=[SimpleNamespace(text=text)]) for text in said]
    commit, unneeded = "893d46f9f4ca953cc5128b2968452eeabdfc0b3c", {"jsonlines", "vllm"}
    with checked_out(checkouts, "ZJU-REAL/VerifyBench", commit, "evaluate.py", unneeded=unneeded) as root:
        theirs = module_of(root / "evaluate.py").evaluate([dict(row) for row in rows], outputs)
    yield compared(benchmark.name, "accuracy", published=theirs["accuracy"], ours=ours["VerifyBench"])
    for kind in verifybench.KINDS:
        credits: dict[str, list[float]] = defaultdict(list)
        for mark in evaluation.marks:
            credits[mark.outline.tags[kind]].append(mark.credit)
        for name, accuracy in theirs[f"accuracy_by_{kind}"].items():
            mine = fmean(credits[f"VerifyBench, {name}"])
            yield compared(benchmark.name, f"accuracy, {kind} {name}", published=accuracy, ours=mine)
    by_truth: dict[bool, list[float]] = defaultdict(list)
    for row, score in zip(rows, scores.values(), strict=True):
        by_truth[row["gold_correct"]].append(-1 if score is None else score)
    area = mannwhitneyu(by_truth[True], by_truth[False]).statistic / (len(by_truth[True]) * len(by_truth[False]))
    name = "VerifyBench, area under ROC"
    yield compared(benchmark.name, f"{name} (SciPy)", published=float(area), ours=ours[name])


def code_judge_bench(checkouts: Path, rng: random.Random) -> Iterator[Check]:
    """Verdicts in both orders on 5 to 40 pairs of each split, some missing. The authors' program prints two decimals."""
    benchmark = codejudgebench.ADVERSARIAL
    splits = codejudgebench.ADVERSARIAL_SPLITS
    said: dict[str, tuple[str, str]] = {}

    def decide(example: Example) -> Sequence[Decision]:
        return [
            Decision(shown=shown, best={"A": shown[0], "B": shown[1]}.get(label))
            for shown, label in zip(((0, 1), (1, 0)), said[str(example.prompt)], strict=True)
        ]

    with tempfile.TemporaryDirectory() as place:
        data, outputs = Path(place) / "data", Path(place) / "outputs-adversarial"
        data.mkdir()
        outputs.mkdir()
        for split in splits:
            rows, verdicts = [], []
            for index in range(rng.randint(5, 40)):
                question, difficulty = f"{split} {index}", rng.choice(("easy", "medium", "hard"))
                rows.append({"question_content": question, "pos_response": "right", "neg_response": "wrong"})
                rows[-1]["difficulty"] = difficulty
                said[question] = (rng.choice(("A", "B", "")), rng.choice(("A", "B", "")))
                for label, verdict in zip("AB", said[question], strict=True):
                    verdicts.append({"pred": verdict, "label": label, "difficulty": difficulty})
            for file, lines in ((data / f"{split}.jsonl", rows), (outputs / f"M_codegen-{split}.jsonl", verdicts)):
                file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        ours = values(evaluated(benchmark, loaded(benchmark, data), decide, Mode.PAIRWISE))
        commit, printed = "bb88c815baff1d3aa1276751d382d0b87cb85a4a", io.StringIO()
        unneeded = {"datasets"}
        with checked_out(checkouts, "hongcha0/CodeJudgeBench", commit, "src/score.py", unneeded=unneeded) as root:
            authors = module_of(root / "src/score.py")
            authors.load_dataset = lambda *given: dict.fromkeys(splits)
            with chdir(place), redirect_stdout(printed):
                authors.score(SimpleNamespace(dataset=benchmark.name, task="codegen", model_name="M"))
    theirs = {name: figure for name, _, figure in (line.rpartition(" ") for line in printed.getvalue().splitlines())}
    names = {f"outputs-adversarial/M_codegen-{split}.jsonl": split for split in splits}
    names |= {"Easy": "easy", "Medium": "medium", "Hard": "hard", "Micro Avg": "all pairs"}
    for line, name in names.items():
        yield compared(benchmark.name, f"{name}, %", published=float(theirs[line]), ours=100 * ours[name], digits=2)


def m_reward_bench(checkouts: Path, rng: random.Random) -> Iterator[Check]:
    """Verdicts and ties on 500 pairs of three languages, in the sections of RewardBench."""
    benchmark = mrewardbench.BENCHMARK
    languages = rng.sample(mrewardbench.LANGUAGES, 3)
    subsets = [subset for weights in SECTIONS.values() for subset in weights]
    pairs: list[Example] = []
    credits: dict[str, dict[str, list[float]]] = {language: defaultdict(list) for language in languages}
    for language in languages:
        texts = {"prompt": "question", "chosen": "right", "rejected": "wrong"}
        rows = [texts | {"id": index, "subset": rng.choice(subsets)} for index in range(500)]
        pairs += made(benchmark, rows, language)
    decisions: dict[str, Decision] = {}
    for pair in pairs:
        language, _, subset = str(pair.outline.subset).partition("/")
        credit = rng.choice((1.0, 0.5, 0.0))
        credits[language][subset].append(credit)
        is_tie = credit == 0.5
        decisions[pair.outline.id] = Decision(shown=(0, 1), tied=is_tie, best=None if is_tie else int(credit == 0.0))
    ours = values(evaluated(benchmark, pairs, lambda example: [decisions[example.outline.id]], Mode.PAIRWISE))
    commit = "05a9005efb607249822c193590c8ecab87c77052"
    with checked_out(checkouts, "allenai/reward-bench", commit, "rewardbench", unneeded=CLIENTS) as root:
        # The table of reward models would load their code.
        sys.modules["rewardbench.models"] = models = ModuleType("rewardbench.models")
        models.REWARD_MODEL_CONFIG = {}  # type: ignore[attr-defined]
        authors = reward_bench_module(root / "rewardbench", "utils")
        constants = imported("rewardbench.constants")
        for language in languages:
            means = {subset: fmean(each) for subset, each in credits[language].items()}
            theirs = authors.calculate_scores_per_section(constants.EXAMPLE_COUNTS, constants.SUBSET_MAPPING, means)
            for name, score in (theirs | {"": fmean(theirs.values())}).items():
                figure = f"{language}/{name}".rstrip("/")
                yield compared(benchmark.name, figure, published=score, ours=ours[figure])


def rmb_rows(checkouts: Path, rng: random.Random) -> Iterator[Check]:
    """The rows of the repository, without files that a partial clone lacks. The scores are hashes with five levels, so that
    there are many ties."""

    def score(text: str) -> float:
        return float(1 + hashlib.sha256(text.encode()).digest()[0] % 5)

    def decide(example: Example) -> Sequence[Decision]:
        return [Decision(shown=(index,), score=score(text)) for index, text in enumerate(example.responses)]

    repository, folder = "Zhou-Zoey/RMB-Reward-Model-Benchmark", "RMB_dataset"
    files, lacked = present_files(checkouts, repository, rmb.REVISION, folder)
    if lacked:
        print(f"{repository}: left out {len(lacked)} files that the clone lacks: {', '.join(lacked)}", file=sys.stderr)
    with checked_out(checkouts, repository, rmb.REVISION, *files, unneeded=()) as root:
        data = root / folder
        evaluation = evaluated(rmb.BENCHMARK, loaded(rmb.BENCHMARK, data), decide, Mode.POINTWISE)
        ours = {figure.name: figure for figure in evaluation.figures}
        for title, part in (("pairs", rmb.PAIRS), ("best of N", rmb.LISTS)):
            for goal in rmb.GOALS:
                read = [json.loads(file.read_text(encoding="utf-8")) for file in (data / part / goal).rglob("*.json")]
                rows = [row for file in read for row in file]
                wins = [_wins(row, score) for row in rows]
                figure = ours[f"{goal} {title}"]
                assert figure.value is not None
                name = f"{figure.name}, {len(rows)} rows of {len(read)} files"
                yield compared(rmb.BENCHMARK.name, name, published=fmean(wins), ours=figure.value)


def _wins(row: Row, score: Callable[[str], float]) -> bool:
    """Return whether the chosen response of a pair or of a list scores higher than every other."""
    if "chosen" in row:
        return score(row["chosen"]["answer"]) > score(row["reject"]["answer"])
    return all(score(row["bon_best"]["answer"]) > score(loser["answer"]) for loser in row["loser_list"])


COMPARISONS = (mt_bench, alpaca_eval, verify_bench, code_judge_bench, m_reward_bench, rmb_rows)


def main(
    checkouts: Annotated[Path, typer.Argument(exists=True, help="Folder with the repositories of the authors.")],
    out: Out = None,
) -> None:
    """Compute figures with the authors' programs and with ours. Exit with status 1 if one differs for no known reason."""
    checks: list[Check] = []
    for comparison in COMPARISONS:
        for one in comparison(checkouts, random.Random(SEED)):
            verdict = f"{one.verdict}: {one.why}" if one.why else one.verdict
            print(f"{one.case:28} {one.figure:50} authors {one.published:10.6f}  ours {one.ours:10.6f}  {verdict}")
            checks.append(one)
    num_same = sum(one.verdict == "same" for one in checks)
    print(f"{num_same} of {len(checks)} figures are the same")
    failed = any(one.verdict not in ("same", "explained") for one in checks)
    report({"seed": SEED, "same": num_same, "figures": [asdict(one) for one in checks]}, out, failed=failed)


if __name__ == "__main__":
    typer.run(main)
