"""Hypothesis without time limits, because a loaded machine may stall any example."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("loaded_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("loaded_machine")
