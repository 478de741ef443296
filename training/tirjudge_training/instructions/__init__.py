"""Checkable instructions as people write them: their notation, the programs that check them, and prompts made of them."""
