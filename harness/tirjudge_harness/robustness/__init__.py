"""Attacks on a judge: changes to wrong responses that try to mislead the judge, and their success rates."""
