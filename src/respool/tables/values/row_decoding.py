"""Decodes values one by one into columns; values that cannot be decoded are rejected with a reason."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from respool.tables.values.message_schema import MessageSchema, ValueMalformed
from respool.tables.values.value_decoder import DecodedValues, Rejected
from respool.tables.values.value_fitting import batch_of, fit_object, json_text


class RowBuilder:
    def __init__(self, fields: Sequence[pa.Field]) -> None:
        self._fields = list(fields)
        self._rows: list[dict[str, Any]] = []
        self._rest: list[str | None] = []
        self._rejected: list[Rejected] = []

    def add(self, row: int, value: bytes | None, schema: MessageSchema) -> None:
        if value is None:
            self._rows.append({})
            self._rest.append(None)
            return
        try:
            fitted, left = fit_object(schema.decode(value), self._fields)
        except ValueMalformed as error:
            self.reject(row, str(error))
            return
        self._rows.append(fitted)
        # An absent field without a column is ignored.
        left = {name: item for name, item in left.items() if item is not None}
        self._rest.append(json_text(left) if left else None)

    def reject(self, row: int, reason: str) -> None:
        self._rejected.append(Rejected(row=row, reason=reason[:200]))

    def result(self) -> DecodedValues:
        return DecodedValues(
            rows=batch_of(self._rows, self._fields),
            rest=pa.array(self._rest, pa.string()),
            rejected=self._rejected,
        )
