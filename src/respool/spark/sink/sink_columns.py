"""The columns of a frame for each part of a message; the same as with Spark's Kafka connector.

| column      | type                                             |                                         |
|-------------|--------------------------------------------------|-----------------------------------------|
| `value`     | string or binary                                 | required                                |
| `key`       | string or binary                                 | optional                                |
| `topic`     | string                                           | the option `topic` takes precedence     |
| `partition` | int                                              | optional; null: the partitioner chooses |
| `headers`   | array of structs of `key` string, `value` binary | optional; not with includeHeaders=false |

Other columns are not written.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from respool.spark.option_values import BadOption

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


class WrongFrame(BadOption):
    """The frame lacks a column that is needed for messages, or it has the wrong type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkColumns:
    key: str | None
    value: str
    # None: all rows go to the topic in the options.
    topic: str | None
    partition: str | None
    headers: str | None

    @classmethod
    def of(
        cls, schema: "StructType", *, has_topic: bool, include_headers: bool = True
    ) -> "SinkColumns":
        """
        Raises:
            WrongFrame: a column is missing, or of another type.
        """
        from pyspark.sql.types import BinaryType, IntegerType, StringType

        found = _Found(schema)
        value = found.column("value", BinaryType, StringType)
        if value is None:
            raise WrongFrame(
                f"there is no column 'value', which is what is written; there are {found.names}. "
                "Name one so, or make one: to_json(struct('*')).alias('value')"
            )
        topic = None if has_topic else found.column("topic", StringType)
        if topic is None and not has_topic:
            raise WrongFrame(
                "where to write to is missing: set the option 'topic', or have a column 'topic' in every row"
            )
        return cls(
            key=found.column("key", BinaryType, StringType),
            value=value,
            topic=topic,
            partition=found.column("partition", IntegerType),
            headers=found.headers() if include_headers else None,
        )


class _Found:
    def __init__(self, schema: "StructType") -> None:
        self._fields: dict[str, list[tuple[str, DataType]]] = {}
        for field in schema.fields:
            self._fields.setdefault(field.name.lower(), []).append((field.name, field.dataType))
        self.names = ", ".join(repr(one) for one in schema.fieldNames()) or "none"

    def column(self, name: str, *types: "type[DataType]") -> str | None:
        ones = self._fields.get(name, [])
        if not ones:
            return None
        if len(ones) > 1:
            raise WrongFrame(f"there are {len(ones)} columns named {name!r}")
        ((given, kind),) = ones
        if not isinstance(kind, types):
            wanted = " or ".join(one.typeName() for one in types)
            raise WrongFrame(
                f"the column {given!r} is {kind.simpleString()}; it must be {wanted}: cast it"
            )
        return given

    def headers(self) -> str | None:
        from pyspark.sql.types import ArrayType, BinaryType, StringType, StructType

        given = self.column("headers", ArrayType)
        if given is None:
            return None
        ((_, kind),) = self._fields["headers"]
        assert isinstance(kind, ArrayType)
        item = kind.elementType
        is_right = (
            isinstance(item, StructType)
            and [one.name for one in item.fields] == ["key", "value"]
            and isinstance(item.fields[0].dataType, StringType)
            and isinstance(item.fields[1].dataType, BinaryType)
        )
        if not is_right:
            raise WrongFrame(
                f"the column {given!r} is {kind.simpleString()}; it must be array<struct<key:string,value:binary>>"
            )
        return given
