"""Judge a user's own file: find the meaning of its columns, and convert its rows to examples of a run.

    rows of a file -> ColumnMapping (given, or found by names and values) -> examples -> a run as of any benchmark

The mapping is part of the manifest of the run. A report builds the benchmark of the run from it.
"""
