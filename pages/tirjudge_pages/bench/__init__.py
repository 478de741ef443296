"""Pages of benchmark runs: what they show (`views`), the file that they read (`index`), and their links (`links`).

The harness writes the index of a run. The server and the static export read it.
"""
