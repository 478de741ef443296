"""Judges files of items, and says how often the judge is right."""
