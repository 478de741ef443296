"""Synthetic pairs: answers to problems that can be checked, sampled from any endpoint, checked, and made into items."""
