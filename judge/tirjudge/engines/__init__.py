"""Engines, which generate tokens: embedded, vLLM over HTTP or in process, chat endpoints, fleets, and a test double."""
