"""A schema of single values: how it decodes one, and which columns it makes."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa


class ValueMalformed(Exception):
    """A value does not match its schema."""


class MessageSchema(Protocol):
    @property
    def fields(self) -> Sequence[pa.Field]:
        """The columns of a value."""

    def decode(self, value: bytes) -> Mapping[str, Any]:
        """
        Raises:
            ValueMalformed
        """
