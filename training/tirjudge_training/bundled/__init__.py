"""The bundled judge, made from nothing: tokenizer, supervised training on generated items, measurement, card."""
