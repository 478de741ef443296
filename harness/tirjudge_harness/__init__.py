"""Run judges on benchmarks and files, and measure how often a judge is right.

    rows          sources, row_files, columns, neutral         from the hub or files to `Example`s
    a benchmark   benchmark, benchmarks/, examples,            the definition of a benchmark and of its metrics
                  metric_tree
    a run         planning, row_sampling, runner, pacing,      requests, concurrency, and the stored results
                  run_store, run, merging, judges,
                  progress
    scoring       decisions, protocols, evaluation             from decisions to comparison scores and metric values
                  external, labelled                           the same for verdicts made by other programs
                  statistics/, reports/                        intervals, bias, calibration; tables, plots, logs
    more commands best_of_n/, robustness/, batch/              select one of N; attacks on a judge; batch jobs
    a plain file  items, judging, output, scoring, summary     `tirjudge judge FILE`, with the same runner

The path of one row:
row -> Example -> JudgeRequest -> Judgment (in the journal) -> Decision -> ComparisonScore -> MetricValue.
"""
