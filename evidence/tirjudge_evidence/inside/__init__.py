"""Modules that run inside the sandbox. They import the standard library, the library of their kind, and each other by their
bare names: the interpreter there does not have tirjudge."""
