"""The training mixture: converts rows of ten public data sets to training items."""
