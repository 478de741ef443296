"""`python -m tirjudge` is the command `tirjudge`."""

from tirjudge.cli import main

main()
