"""The two programs of a python grader, which never share a process: the grader, and the code of the sample."""
