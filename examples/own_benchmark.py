"""Measure a judge on rows of your own, and print a table: the same as `tirjudge bench run --data FILE`."""

import csv
import subprocess
import sys
import tempfile
from pathlib import Path

ROWS = [
    ("Write exactly two words.", "red fox", "the red fox"),
    ("Answer in lowercase letters only. What falls from clouds?", "rain falls", "Rain falls."),
    ("What is 17 + 25?", "42", "43"),
]


def tirjudge(*arguments: str) -> None:
    """Run a command; end with its status if it fails."""
    subprocess.run([sys.executable, "-m", "tirjudge", *arguments], check=True)


with tempfile.TemporaryDirectory() as folder:
    data, run = Path(folder, "mine.csv"), Path(folder, "run")
    with data.open("w", newline="") as file:
        csv.writer(file).writerows([("prompt", "chosen", "rejected"), *ROWS])
    tirjudge("bench", "run", "--data", str(data), "--out", str(run))
    tirjudge("bench", "report", str(run), "--format", "markdown")
