"""Candidates that are wrong and try to appear right when a judge's program runs them."""
