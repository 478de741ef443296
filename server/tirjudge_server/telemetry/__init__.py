"""Telemetry: metrics, logs and traces of a server.

Three kinds of events are observed: HTTP requests (the middleware in `requests.py`), judgments (`JudgeService.around` and
`JudgeService.on_end`), and calls of the engine and the sandbox (`instrumenting.py`). `metrics.py`, `logs.py` and `tracing.py`
observe them independently of one another.
"""
