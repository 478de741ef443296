"""What every HTTP service of ours does alike: read a body, name a mistake, check a key, notice a hang-up, come to an end.

The rooms that serve build on it. It needs the extra `server`, and nothing that `import tirjudge` loads imports it.
"""
