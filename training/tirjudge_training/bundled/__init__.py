"""The bundled judge, trained from scratch: tokenizer, supervised training on synthetic items, evaluation, model
card."""
