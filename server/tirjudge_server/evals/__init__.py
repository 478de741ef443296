"""OpenAI's Evals API: definitions of evals, and their runs over rows of data."""
