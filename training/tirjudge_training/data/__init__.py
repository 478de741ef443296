"""The training mixture: from rows of ten public data sets to items that are judged."""
