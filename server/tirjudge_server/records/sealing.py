"""Fields that can be proven unchanged, and erased one by one without breaking the proof.

Each field has a commitment: a salted hash of its value. The hash of a record covers the commitments only. Erasing a field
removes its value and salt and keeps the commitment. Without the salt, guessed values cannot be checked against it.
"""

from __future__ import annotations

import hashlib
import json
import os
from base64 import b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

# Created once: with these options `json.dumps` creates a new encoder for each value.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical(value: Any) -> str:
    """Return the canonical encoding of a JSON value: ASCII, sorted keys, no spaces.

    >>> canonical({"b": 1.5, "a": "é"})
    '{"a":"\\\\u00e9","b":1.5}'
    """
    return _ENCODER.encode(value)


def sha256(text: str) -> str:
    """Return the SHA-256 of an ASCII text, in hexadecimal."""
    return hashlib.sha256(text.encode("ascii")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a record."""

    commitment: str
    """SHA-256 of name, salt and value."""
    salt: str | None
    """Random salt in base64. None: the field is erased."""
    text: str | None
    """The value as canonical JSON. None: the field is erased."""

    @property
    def erased(self) -> bool:
        """Whether the field is erased or withheld."""
        return self.text is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """The content of a record."""

    fields: Mapping[str, Field]
    """Name -> field."""
    withheld: tuple[str, ...] = ()
    """Names of fields whose values were never stored, by the operator's choice."""

    @property
    def values(self) -> dict[str, Any]:
        """Name -> JSON value, of the fields that are not erased."""
        return {name: json.loads(field.text) for name, field in self.fields.items() if field.text is not None}

    @property
    def erased(self) -> tuple[str, ...]:
        """Names of fields that are erased or withheld."""
        return tuple(sorted(name for name, field in self.fields.items() if field.erased))

    @property
    def commitments(self) -> dict[str, str]:
        """Name -> commitment, of all fields."""
        return {name: field.commitment for name, field in self.fields.items()}

    def without(self, names: Collection[str]) -> Sealed:
        """Return the content with these fields erased."""
        emptied = {name: replace(self.fields[name], salt=None, text=None) for name in names if name in self.fields}
        return replace(self, fields={**self.fields, **emptied})

    def dump(self) -> str:
        """Return the content as stored text. The commitment of a field that is not erased is left out and recomputed."""
        fields = ",".join(f"{canonical(name)}:{_dump(field)}" for name, field in sorted(self.fields.items()))
        return f'{{"fields":{{{fields}}},"withheld":{canonical(self.withheld)}}}'


def _dump(field: Field) -> str:
    if field.text is None:
        return f'{{"sha256":{canonical(field.commitment)}}}'
    return f'{{"salt":{canonical(field.salt)},"value":{field.text}}}'


def seal(values: Mapping[str, Any], *, withheld: Collection[str] = ()) -> Sealed:
    """Commit to values.

    Args:
        values: Name -> JSON value.
        withheld: Names of fields to commit to without keeping the value. Names that are not in `values` are ignored.
    """
    fields = {name: _sealed(name, salt=b64encode(os.urandom(18)).decode(), value=values[name]) for name in values}
    absent = tuple(sorted(name for name in withheld if name in values))
    return replace(Sealed(fields=fields).without(absent), withheld=absent)


def _sealed(name: str, *, salt: str, value: Any) -> Field:
    text = canonical(value)
    # The same text as canonical([name, salt, value]).
    commitment = sha256(f"[{canonical(name)},{canonical(salt)},{text}]")
    return Field(commitment=commitment, salt=salt, text=text)


def load(text: str) -> Sealed:
    """Parse the output of `Sealed.dump`. Commitments are computed from the present values, which may have been changed.

    Raises:
        ValueError: The text is not an output of `dump`.
    """
    try:
        stored = json.loads(text)
        fields = {name: _loaded(name, stored=field) for name, field in stored["fields"].items()}
        return Sealed(fields=fields, withheld=tuple(stored["withheld"]))
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not sealed content: {error!r}") from error


def _loaded(name: str, *, stored: Mapping[str, Any]) -> Field:
    if "sha256" in stored:
        return Field(commitment=stored["sha256"], salt=None, text=None)
    return _sealed(name, salt=stored["salt"], value=stored["value"])
