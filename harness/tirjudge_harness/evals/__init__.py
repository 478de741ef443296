"""`tirjudge evals`: run, list, show and import evals of a server with OpenAI's Evals API."""
