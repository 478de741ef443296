"""Download the rows of benchmarks, so that machines without a network can run them with `--data`.

remote_files.py   the files of a source on the Hugging Face hub, or at URLs
transfer.py       download one file, resumable, with checksums
snapshot.py       the downloaded folder of a benchmark and its manifest
download.py       download the parts of a benchmark
cli.py            `tirjudge bench download`
"""
