"""Telemetry: metrics, logs and traces of a server.

Three things are observed: requests (`requests.py`, around the application), judgments (`JudgeService.around` and
`JudgeService.on_end`), and calls of engine and sandbox (`instrumenting.py`). `metrics.py`, `logs.py` and `tracing.py` observe
them; none imports another.
"""
