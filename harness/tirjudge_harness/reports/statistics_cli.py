"""`tirjudge bench estimate`, `rank` and `power`: inference from runs and from labels of people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tirjudge_harness.reports.cli import ByProtocol, TableFile, TableFormat, write_tables
from tirjudge_harness.reports.formats import ReportFormat


def estimate(
    source: Annotated[
        Path,
        typer.Argument(
            help="Folder of a run, output of `tirjudge judge`, or JSONL file of decisions as for `tirjudge bench score`."
        ),
    ],
    labels: Annotated[
        Path,
        typer.Option(
            help="File with the columns id and label (A>B, A=B, B>A, model_a, ...), or id, score and response (an index)."
        ),
    ],
    format: TableFormat = ReportFormat.TERMINAL,
    out: TableFile = None,
) -> None:
    """Estimate what people would say about all examples, from labels of a random sample and all verdicts of the judge.

    Prediction-powered inference corrects the judge by its errors on the labeled examples, so the interval is valid for any
    judge, and narrower than that of the labels alone if the judge is good. Labels: `label` is a preference between two
    responses, `score` is a number for one response. Rows without a label are left out. Several rows on one example are labels
    of several people. Labels of unknown examples are an error; a sample that is visibly not random is a warning.

    Examples:
        tirjudge bench estimate runs/arena --labels people.csv
        tirjudge bench estimate judged.jsonl --labels people.csv    # after: tirjudge judge rows.csv --out judged.jsonl
    """
    from tirjudge_harness.reports.estimates import estimate_table

    write_tables([estimate_table(source, labels=labels)], format=format, out=out)


def rank(
    source: Annotated[
        Path,
        typer.Argument(
            help="Run or output of `tirjudge judge` whose rows name models, or file with model_a, model_b, winner, prompt."
        ),
    ],
    arena: Annotated[
        Path | None, typer.Option(help="File of people's ratings: model, score, and optionally low and high.")
    ] = None,
    format: TableFormat = ReportFormat.TERMINAL,
    out: TableFile = None,
) -> None:
    """Rank models by the verdicts of a judge, and compare the ranking with people's.

    Bradley-Terry ratings with bootstrap intervals, win rates and separability; with --arena also Spearman's and Kendall's
    rank correlations, and agreement with confidence. `winner` is model_a, model_b, tie, or a decision such as A>B. A run on
    your own rows names its models in two columns, such as model_a and model_b.

    Examples:
        tirjudge bench rank verdicts.csv --arena arena.csv
    """
    from tirjudge_harness.reports.rankings import ranking_table

    write_tables([ranking_table(source, arena=arena)], format=format, out=out)


def power(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            help="One run, for its accuracy and size, or two runs, for how often judges differ. Default: none."
        ),
    ] = None,
    difference: Annotated[
        list[float] | None,
        typer.Option(min=0.01, max=100.0, help="Difference to find, in points; repeatable. Default: 1, 2 and 5."),
    ] = None,
    items: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Number of comparisons. Default: that of the runs.")
    ] = None,
    accuracy: Annotated[
        float, typer.Option(min=0.0, max=100.0, help="Assumed accuracy of the first judge, in percent.")
    ] = 70.0,
    agreement: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=100.0,
            help="Assumed percentage of comparisons on which both are right or both wrong. Default: independent errors.",
        ),
    ] = None,
    goal: Annotated[
        float, typer.Option("--power", min=1.0, max=99.9, help="Probability of finding the difference, in percent.")
    ] = 80.0,
    alpha: Annotated[
        float, typer.Option(min=0.0001, max=50.0, help="Probability of a false finding, in percent.")
    ] = 5.0,
    tests: Annotated[
        int, typer.Option(min=1, max=10_000, help="Number of comparisons of judges; divides --alpha (Bonferroni).")
    ] = 1,
    protocol: ByProtocol = None,
    format: TableFormat = ReportFormat.TERMINAL,
    out: TableFile = None,
) -> None:
    """Say how many comparisons show a difference of two judges, and which difference a benchmark can show.

    Examples:
        tirjudge bench power --difference 2 --accuracy 70 --agreement 90    # how many comparisons for 2 points
        tirjudge bench power --items 350 --agreement 90                     # which difference 350 comparisons can show
        tirjudge bench power runs/a runs/b --difference 1                   # for judges that differ as two runs do
    """
    from tirjudge_harness.items import InputError
    from tirjudge_harness.reports.power import AssumedJudges, power_table
    from tirjudge_harness.reports.scored import run_folders, score_run
    from tirjudge_harness.statistics.power import Goal

    runs = [score_run(folder, protocol=protocol) for folder in run_folders(folders or [])]
    try:
        table = power_table(
            goal=Goal(alpha=alpha / 100 / tests, power=goal / 100),
            differences=[points / 100 for points in difference or (1.0, 2.0, 5.0)],
            assumed=AssumedJudges(accuracy=accuracy / 100, agreement=None if agreement is None else agreement / 100),
            runs=runs,
            num_items=items,
        )
    except ImportError:
        raise InputError("tirjudge bench power needs scipy: pip install 'tirjudge[bench]'") from None
    write_tables([table], format=format, out=out)
