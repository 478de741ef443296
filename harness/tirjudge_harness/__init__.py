"""Judges benchmarks and files, and says how often the judge is right.

    rows          sources, row_files, columns, neutral         from the hub or files to `Example`s
    a benchmark   benchmark, benchmarks/, examples,            what it is made of, and what its figures are
                  metric_tree
    a run         planning, row_sampling, runner, pacing,      what is asked, at what pace, and what is kept of it
                  journal, answers, run, merging, judges,
                  progress
    scoring       decisions, protocols, evaluation             from decisions to comparison scores and metric values
                  external, labelled                           the same for verdicts made elsewhere
                  statistics/, reports/                        intervals, bias, calibration; tables, plots, logs
    beside them   best_of_n/, robustness/                      choosing one of N; attacks on a judge
    a plain file  items, judging, output, scoring, summary     `tirjudge judge FILE`, by the same runner and journal

The way of one row: row -> Example -> JudgeRequest -> Judgment (in the journal) -> Decision -> ComparisonScore -> MetricValue.
"""
