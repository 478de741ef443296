"""Best of N: a judge picks one of N responses, and a grader says whether that response is right."""
