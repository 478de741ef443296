"""Fixtures with the real tokenizers of model families."""

from tests.clients.wheels import wheel
from tests.families.models import families, forced_model, tiny_model

__all__ = ["families", "forced_model", "tiny_model", "wheel"]
