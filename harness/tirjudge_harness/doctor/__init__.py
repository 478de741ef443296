"""`tirjudge doctor`: open a model, examine it, and say what it can be used for."""
