"""The two programs of a python grader: one runs the grader, the other the code of the sample. They share no process."""
