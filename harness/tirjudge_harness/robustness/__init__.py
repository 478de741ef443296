"""Attacks on a judge: what is done to wrong responses so that they are taken for right ones, and how often that works."""
