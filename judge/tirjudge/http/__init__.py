"""Code shared by HTTP clients and servers: retries, error bodies, worker health checks, and the wire types of
rewards."""

DEFAULT_URL = "http://127.0.0.1:8400"
"""Where `tirjudge serve` listens unless it gets another address."""
