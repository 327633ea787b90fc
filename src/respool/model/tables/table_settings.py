"""Topic settings of topics that `respool table run` keeps as tables. The broker checks and stores them.

They are the single source of truth: writers and readers of a table get them from the brokers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from respool.model.config_rules import (
    LONG_MAX,
    ConfigKind,
    ConfigRule,
    long_between,
    one_of,
    parse_each,
    rules_of,
    yes_or_no,
)
from respool.model.errors import InvalidConfig
from respool.model.tables.column_types import is_column_name
from respool.model.tables.value_schema import ValueSchema, parse_value_schema

KIB, MIB = 1024, 1024 * 1024
_CATALOGS = ("rest:", "hive:", "named:")


class TableKind(StrEnum):
    NONE = "none"
    DELTA = "delta"
    ICEBERG = "iceberg"


class TableLayout(StrEnum):
    """Where a value's fields are: columns of their own, or together in the column `value`."""

    FLAT = "flat"
    STRUCT = "struct"


class OnBadRecord(StrEnum):
    TABLE = "table"
    STOP = "stop"
    DROP = "drop"


class OnGap(StrEnum):
    STOP = "stop"
    CONTINUE = "continue"


class PartitionBy(StrEnum):
    NONE = "none"
    DAY = "day"


def _text_rule(doc: str) -> dict[str, ConfigRule]:
    def parse(text: str) -> str:
        if not text.isprintable():
            raise InvalidConfig(f"{text[:60]!r} has characters that cannot be printed")
        return text.strip()

    return {"rule": ConfigRule(kind=ConfigKind.STRING, doc=doc, parse=parse)}


def _location_rule(doc: str) -> dict[str, ConfigRule]:
    def parse(text: str) -> str:
        said = text.strip().rstrip("/")
        if said and "://" not in said and not said.startswith("/"):
            raise InvalidConfig(
                f"{said!r} is neither a URL, such as s3://bucket/tables, nor an absolute path"
            )
        if "@" in said.partition("://")[2].partition("/")[0]:
            raise InvalidConfig(
                "the address contains credentials, which everyone would see: set them in the writer's environment"
            )
        if not said.isprintable():
            raise InvalidConfig(f"{said[:60]!r} has characters that cannot be printed")
        return said

    return {"rule": ConfigRule(kind=ConfigKind.STRING, doc=doc, parse=parse)}


def _catalog_rule(doc: str) -> dict[str, ConfigRule]:
    checked = _location_rule("")["rule"]

    def parse(text: str) -> str:
        said = text.strip()
        if said in {"", "glue"}:
            return said
        word, colon, rest = said.partition(":")
        if f"{word}{colon}" not in _CATALOGS or not rest:
            raise InvalidConfig(
                f"{said!r} is not one of: nothing (SQLite beside the table), rest:URL, hive:URL, glue, named:NAME"
            )
        if word != "named":
            checked.parse(rest)
        return said

    return {"rule": ConfigRule(kind=ConfigKind.STRING, doc=doc, parse=parse)}


def _name_rule(doc: str) -> dict[str, ConfigRule]:
    def parse(text: str) -> str:
        said = text.strip()
        if said and not all(part and is_column_name(part) for part in said.split(".")):
            raise InvalidConfig(f"{said!r} is not NAME or NAMESPACE.NAME")
        return said

    return {"rule": ConfigRule(kind=ConfigKind.STRING, doc=doc, parse=parse)}


def _schema_rule(doc: str) -> dict[str, ConfigRule]:
    return {"rule": ConfigRule(kind=ConfigKind.STRING, doc=doc, parse=parse_value_schema)}


@dataclass(frozen=True, kw_only=True)
class TableSettings:
    respool_table: TableKind = field(
        default=TableKind.NONE,
        metadata=one_of(
            ConfigKind.STRING,
            TableKind,
            "Which table 'respool table run' keeps of the topic: 'delta', 'iceberg', or 'none'.",
        ),
    )
    respool_table_catalog: str = field(
        default="",
        metadata=_catalog_rule(
            "Catalog of an Iceberg table: rest:URL, hive:URL, glue, or named:NAME from pyiceberg's own "
            "configuration; empty: SQLite in the table's folder. Credentials belong in the writer's environment."
        ),
    )
    respool_table_errors: OnBadRecord = field(
        default=OnBadRecord.TABLE,
        metadata=one_of(
            ConfigKind.STRING,
            OnBadRecord,
            "What the writer does with a record that does not match the schema: 'table' puts its bytes and the "
            "reason into the table <name>__rejected, 'stop' stops the writer, 'drop' omits and counts it.",
        ),
    )
    respool_table_file_bytes: int = field(
        default=128 * MIB,
        metadata=long_between(
            64 * KIB, 4096 * MIB, "The size at which the writer closes a file and begins the next."
        ),
    )
    respool_table_gap: OnGap = field(
        default=OnGap.STOP,
        metadata=one_of(
            ConfigKind.STRING,
            OnGap,
            "What happens if records were deleted before the table had them: 'stop', or 'continue' without them, "
            "and note it in the table's history.",
        ),
    )
    respool_table_interval_ms: int = field(
        default=60_000,
        metadata=long_between(
            100, 24 * 3_600_000, "How often new records are committed to the table."
        ),
    )
    respool_table_keep_raw: bool = field(
        default=False,
        metadata=yes_or_no(
            "Whether the table also has the raw bytes of each value, in the column _value."
        ),
    )
    respool_table_layout: TableLayout = field(
        default=TableLayout.FLAT,
        metadata=one_of(
            ConfigKind.STRING,
            TableLayout,
            "Whether a value's fields are columns of the table ('flat'), or fields of one column, value ('struct').",
        ),
    )
    respool_table_location: str = field(
        default="",
        metadata=_location_rule(
            "The table's folder: an absolute path, or a URL such as s3://bucket/rides."
        ),
    )
    respool_table_name: str = field(
        default="",
        metadata=_name_rule(
            "Name of an Iceberg table in its catalog: NAME or NAMESPACE.NAME; empty: respool.<topic>."
        ),
    )
    respool_table_partition_by: PartitionBy = field(
        default=PartitionBy.NONE,
        metadata=one_of(
            ConfigKind.STRING,
            PartitionBy,
            "Whether files are divided by the day of _timestamp: 'none' or 'day'. Readers skip files by their "
            "statistics either way.",
        ),
    )
    respool_table_registry: str = field(
        default="",
        metadata=_location_rule("The URL of the schema registry."),
    )
    respool_table_retention_ms: int = field(
        default=-1,
        metadata=long_between(
            -1, LONG_MAX, "How long rows stay in the table, by _timestamp; -1 for ever."
        ),
    )
    respool_table_schema: ValueSchema = field(
        default=ValueSchema(),
        metadata=_schema_rule(
            "How values are decoded: raw, infer (JSON), declared:<columns> (JSON), registry, registry:latest, "
            "avro:<schema>, protobuf:<text>."
        ),
    )


# A topic that copies another one's settings must not write to its table.
TABLE_SETTING_NAMES: frozenset[str] = frozenset(
    name.replace("_", ".") for name in TableSettings.__dataclass_fields__
)


def check_table_settings(settings: TableSettings) -> None:
    """
    Raises:
        InvalidConfig: the settings contradict each other.
    """
    if settings.respool_table is TableKind.NONE:
        return
    if not settings.respool_table_location:
        raise InvalidConfig(
            f"respool.table = {settings.respool_table} needs respool.table.location"
        )
    if settings.respool_table is TableKind.DELTA and settings.respool_table_catalog:
        raise InvalidConfig(
            "respool.table.catalog is for Iceberg tables: a Delta table is found by its folder"
        )
    if settings.respool_table_schema.uses_registry and not settings.respool_table_registry:
        raise InvalidConfig(
            f"respool.table.schema = {settings.respool_table_schema} needs respool.table.registry"
        )
    is_local = (
        "://" not in settings.respool_table_location
        or settings.respool_table_location.startswith("file://")
    )
    if (
        settings.respool_table is TableKind.ICEBERG
        and not settings.respool_table_catalog
        and not is_local
    ):
        raise InvalidConfig(
            "an Iceberg table in an object store needs respool.table.catalog: SQLite is for a local folder"
        )


def table_settings_of(values: Mapping[str, str]) -> TableSettings:
    """Parse the settings as a broker describes them; names that are not about tables are ignored.

    Raises:
        InvalidConfig: a value is invalid here, for example from a newer broker.
    """
    given = {name: text for name, text in values.items() if name in TABLE_SETTING_NAMES}
    return TableSettings(**parse_each(given, rules_of(TableSettings), of="topic"))
