"""Reports on runs: tables next to published results, paired comparisons, plots, and logs for Inspect."""
