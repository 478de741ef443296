"""Graders decide which responses to a problem are right, one grader per kind of problem.

- `aime`: compare integers from 0 to 999 (facts: `answer`).
- `math`: compare mathematical answers of any form with math-verify (facts: `answer`).
- `gsm8k`: compare the last number (facts: `answer`).
- `ifeval`: check that instructions are followed (facts: `instruction_id_list`, `kwargs`).
- `code`: run programs with their tests in the sandbox (facts: `assertion` or `test`; optionally `entry_point` and
  `code_prompt`).
"""
