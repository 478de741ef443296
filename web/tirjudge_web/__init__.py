"""HTTP plumbing of every service: connections, limits, bodies, keys, errors, shutdown.

The rooms that serve build on it. It needs the extra `server`, and nothing that `import tirjudge` loads imports it.
"""
