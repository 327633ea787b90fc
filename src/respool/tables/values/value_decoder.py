"""The interface of decoders from values to columns.

A decoder never shifts rows: it returns one row for each value that it can read, in order, and names the others by their
index.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

# Values that decode to more bytes or nest deeper are rejected.
DEPTH_MAX = 32
COLUMNS_MAX = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    # The index in the given values.
    row: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedValues:
    # One row for each value that is not rejected, with the fields asked for.
    rows: pa.RecordBatch
    # JSON of what fits no field, or null; one for each row.
    rest: pa.Array
    rejected: Sequence[Rejected] = ()


class ValueDecoder(Protocol):
    def new_fields(self, values: pa.Array, fields: Sequence[pa.Field]) -> list[pa.Field]:
        """Return fields that these values have and the table does not; of a struct that grew, the whole struct.

        Raises:
            RegistryUnavailable: the registry does not answer.
        """

    def decode(self, values: pa.Array, fields: Sequence[pa.Field]) -> DecodedValues:
        """Decode these fields of binary values. A null value is a row of nulls.

        Raises:
            RegistryUnavailable: the registry does not answer.
        """

    def close(self) -> None: ...
