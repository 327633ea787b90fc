"""Opens the table that a topic's settings describe, and the table of its rejected records beside it."""

from typing import TYPE_CHECKING

from respool.model.tables.table_settings import TableKind, TableSettings
from respool.tables.errors import DependencyMissing, NoTable

if TYPE_CHECKING:
    from respool.tables.formats.table_log import TableLog, TopicIdentity

REJECTED = "__rejected"


def open_table(settings: TableSettings, topic: str, *, partitions: int) -> "TableLog":
    """
    Raises:
        NoTable: the topic has no table by its settings.
        DependencyMissing: a package is missing.
        TableError: the place or the catalog cannot be opened.
    """
    return _open(settings, topic, partitions, end="")


def open_rejected(settings: TableSettings, topic: str, *, partitions: int) -> "TableLog":
    """Open the table of rejected records; it may not exist yet."""
    return _open(settings, topic, partitions, end=REJECTED)


def make_rejected(
    settings: TableSettings, topic: "TopicIdentity", *, partitions: int
) -> "TableLog":
    """Open the table of rejected records; create it if it does not exist."""
    from respool.tables.errors import TableExists
    from respool.tables.layout import Layout

    log = open_rejected(settings, topic.name, partitions=partitions)
    try:
        log.load()
    except NoTable:
        try:
            log.create(Layout.of_rejected().schema(()), topic, by_day=False)
        except TableExists:
            # Another writer has created it in the meantime.
            log.load()
    return log


def _open(settings: TableSettings, topic: str, partitions: int, *, end: str) -> "TableLog":
    kind = settings.respool_table
    if kind is TableKind.NONE:
        raise NoTable(
            f"topic {topic} has no table", hint=f"make one with: respool table create {topic}"
        )
    location = settings.respool_table_location + end
    try:
        if kind is TableKind.DELTA:
            from respool.tables.formats.delta_log import DeltaLog

            return DeltaLog(location, partitions)
        from respool.tables.formats.iceberg_log import IcebergLog
    except ModuleNotFoundError as error:
        from respool.model.extras import how_to_install

        extra = "lake" if kind is TableKind.DELTA else "iceberg"
        raise DependencyMissing(
            f"a {kind} table needs {error.name}, which is not installed", hint=how_to_install(extra)
        ) from error
    name = (settings.respool_table_name or topic_table(topic)) + end
    # One catalog has both tables: the embedded one is beside the first.
    beside = settings.respool_table_location
    return IcebergLog(location, settings.respool_table_catalog, name, beside=beside)


def topic_table(topic: str) -> str:
    """The name of a topic's table in a catalog: dots would be namespaces."""
    return "respool." + topic.replace(".", "_")
