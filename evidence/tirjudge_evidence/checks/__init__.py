"""Checks of responses: SHACL shapes, SPARQL, SQL, JSON Schema, patterns, and Python in the sandbox. One file per kind.

tirjudge serve --checks rules.toml
"""
