"""Endpoints with OpenAI's wire format. Each translates its requests into judgments."""
