"""Synthetic items: prompts with instructions that a program can check, generated responses, and the correct
verdicts."""
