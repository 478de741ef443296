"""Fixtures with the real tokenizers of model families."""

from tests.clients.wheels import wheel
from tests.families.models import families, tiny_model

__all__ = ["families", "tiny_model", "wheel"]
