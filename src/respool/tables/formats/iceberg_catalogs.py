"""The catalog of an Iceberg table, by `respool.table.catalog`: SQLite in its folder, REST, Hive, Glue, or a named one.

Credentials are never in the setting: pyiceberg reads them from its configuration file and from the environment, as
`PYICEBERG_CATALOG__RESPOOL__TOKEN` for the catalog of that name, and AWS's and Google's libraries from theirs.
"""

from typing import TYPE_CHECKING

from respool.tables.errors import DependencyMissing, TableError
from respool.tables.formats.file_store import FileStore

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

NAME = "respool"
SQLITE = "catalog.sqlite"
# Files are read and written by pyarrow, as those of a Delta table are.
_FILES = {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}


def open_catalog(setting: str, files: FileStore) -> "Catalog":
    """
    Raises:
        DependencyMissing: pyiceberg, or a library of this catalog, is not installed.
        TableError: the catalog cannot be reached.
    """
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NotInstalledError
    except ModuleNotFoundError as error:
        raise missing(error) from error
    try:
        name, properties = _named(setting, files)
        return load_catalog(name, **properties)
    except (NotInstalledError, ModuleNotFoundError) as error:
        raise missing(error) from error
    except Exception as error:
        # Each catalog has its own library, with errors of its own.
        raise TableError(
            f"the Iceberg catalog {setting or 'beside the table'!r} cannot be opened: {error}",
            hint="see respool.table.catalog, and the login in the environment (PYICEBERG_CATALOG__RESPOOL__…)",
        ) from error


def _named(setting: str, files: FileStore) -> tuple[str, dict[str, str]]:
    word, _colon, rest = setting.partition(":")
    match word:
        case "":
            files.local_folder.mkdir(parents=True, exist_ok=True)
            uri = f"sqlite:///{files.local_folder / SQLITE}"
            return NAME, {**_FILES, "type": "sql", "uri": uri, "warehouse": files.location}
        case "named":
            return rest, {}
        case "glue":
            return NAME, {**_FILES, "type": "glue"}
    return NAME, {**_FILES, "type": word, "uri": rest}


def missing(error: Exception) -> DependencyMissing:
    from respool.model.extras import how_to_install

    return DependencyMissing(
        f"an Iceberg table needs a package that is not installed: {error}",
        hint=how_to_install("iceberg"),
    )
