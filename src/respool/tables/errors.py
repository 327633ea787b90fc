"""What goes wrong with tables, by who can act. All are `TableError`; the hint says what to do.

- `TableConflict` and `CommitUnknown` are resolved by the writer itself: it reloads and decides again.
- `RegistryUnavailable` passes: the writer waits, and guesses nothing.
- The others need an operator; the writer stops, and the table stays as its last commit left it.
"""

from respool.model.operator_errors import OperatorError


class TableError(OperatorError):
    """A table cannot be written or read as asked."""


class NoTable(TableError):
    """The topic has no table, or the table is not where its settings say."""


class TableExists(TableError):
    """There is a table already, or something else, where one should be made."""


class ForeignTable(TableError):
    """The table belongs to another topic, or to an earlier topic of the same name."""


class TableAltered(TableError):
    """Someone else changed the table's columns or settings in a way that the writer cannot continue with."""


class RecordsDeleted(TableError):
    """The log no longer has records that the table lacks."""


class PositionBeyondLog(TableError):
    """The table has more of a partition than the log ever had: the log was truncated, or is another one."""


class RecordRejected(TableError):
    """A record cannot be read as the schema says, and `respool.table.errors` is stop."""


class SchemaInvalid(TableError):
    """A schema cannot be used: it is malformed, or has types that no column can have."""


class RegistryUnavailable(TableError):
    """The schema registry does not answer, or answers with something else."""


class DependencyMissing(TableError):
    """A package is missing that this kind of table or value needs."""


class TableConflict(TableError):
    """Another commit came first. This one is not in the table."""


class CommitUnknown(TableError):
    """No answer to a commit: it is unknown whether it is in the table."""
