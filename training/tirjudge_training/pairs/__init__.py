"""Synthetic pairs: answers to verifiable problems, sampled from a chat endpoint, checked, and combined into items."""
