"""Makes the checkpoints that are served: synthetic data, tokenizer, supervised training, evaluation, model card."""
