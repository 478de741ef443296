"""Shared HTTP code of all services: connections, limits, bodies, API keys, errors, shutdown.

It needs the extra `server`. `import tirjudge` does not import it.
"""
