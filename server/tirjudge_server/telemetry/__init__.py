"""Telemetry: metrics, logs and traces of a server.

Three things are told of: requests (`requests.py`, around the application), judgments (`Service.around` and
`Service.on_end`), and what a judgment does below (`instrumenting.py`, around its engine and its sandbox). `metrics.py`, `logs.py`
and `tracing.py` listen; none knows of the others.
"""
