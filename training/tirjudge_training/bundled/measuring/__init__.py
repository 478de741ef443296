"""Measures a checkpoint on real prompts and responses: items, the run, figures, and a report on contamination."""
