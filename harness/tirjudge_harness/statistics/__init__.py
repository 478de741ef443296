"""Statistics of runs: pure functions over judged examples and the scores of their comparisons."""
