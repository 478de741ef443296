"""Capacity plans: compute the hardware that a load needs, with closed formulas."""
