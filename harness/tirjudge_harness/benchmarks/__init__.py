"""The built-in benchmarks, one file each. Other packages add benchmarks through the entry point `tirjudge.benchmarks`."""
