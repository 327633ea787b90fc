"""Errors of tables. All are `TableError`; the hint says what to do.

- `TableConflict` and `CommitUnknown` are resolved by the writer itself: it reloads and decides again.
- `RegistryUnavailable` is transient: the writer waits for the registry.
- For the others an operator must act; the writer stops, and the table stays as the last commit left it.
"""

from respool.model.operator_errors import OperatorError


class TableError(OperatorError):
    """A table cannot be written or read as asked."""


class NoTable(TableError):
    """The topic has no table, or the table is not where its settings say."""


class TableExists(TableError):
    """The location already has a table, or other files."""


class ForeignTable(TableError):
    """The table belongs to another topic, or to an earlier topic of the same name."""


class TableAltered(TableError):
    """Another program changed the table's columns or settings, so that the writer cannot continue."""


class RecordsDeleted(TableError):
    """The log no longer has records that the table lacks."""


class PositionBeyondLog(TableError):
    """The table's position is beyond the log's end: the log was truncated or replaced."""


class RecordRejected(TableError):
    """A record does not match the schema, and `respool.table.errors` is stop."""


class SchemaInvalid(TableError):
    """A schema is malformed, or has types without a column type."""


class RegistryUnavailable(TableError):
    """The schema registry does not answer, or its reply is invalid."""


class DependencyMissing(TableError):
    """A package that this kind of table or value needs is not installed."""


class TableConflict(TableError):
    """Another commit came first. This one is not in the table."""


class CommitUnknown(TableError):
    """No answer to a commit: it is unknown whether it is in the table."""
