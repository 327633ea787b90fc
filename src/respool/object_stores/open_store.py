"""From an archive's address to its store: `file://`, `s3://`, `gs://`, `az://`, `hdfs://`."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import UUID, uuid4

from respool.model.archiving.archive_errors import ArchiveRefused
from respool.object_stores.bucket_store import BucketStore, options_from_environment
from respool.object_stores.folder_store import FolderStore
from respool.object_stores.hdfs_store import HdfsStore
from respool.ports.object_store import ObjectStore

BUCKETS = frozenset({"s3", "gs", "az"})
SCHEMES = "file://, s3://, gs://, az:// or hdfs://"


def read_options(path: str) -> dict[str, str]:
    """Read a file of lines `name=value`; none if the path is empty.

    Raises:
        ArchiveRefused: it cannot be read, or a line is malformed. No value is in the message.
    """
    if not path:
        return {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ArchiveRefused(
            f"archive_credentials_file = {path!r} cannot be read: {error}"
        ) from error
    options = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, separator, value = line.partition("=")
        if not separator:
            raise ArchiveRefused(f"{path}, line {number}: write name=value")
        options[name.strip()] = value.strip()
    return options


def open_store(
    address: str,
    *,
    endpoint: str = "",
    region: str = "",
    part_bytes: int = 16 * 1024 * 1024,
    options: Mapping[str, str] | None = None,
    process_id: UUID | None = None,
) -> ObjectStore:
    """Open the store at this address. Nothing is sent to it yet.

    Raises:
        ArchiveRefused: the address is malformed, or a library is missing.
    """
    url = urlsplit(address)
    if url.password or url.username:
        raise ArchiveRefused(
            "archive: the address must not contain credentials; give them in the environment or in a credentials file"
        )
    if url.query or url.fragment:
        raise ArchiveRefused(f"archive = {address!r}: an address ends with its path")
    if url.scheme == "file":
        if url.netloc or not url.path.startswith("/"):
            raise ArchiveRefused(f"archive = {address!r}: write file:///absolute/path")
        return FolderStore(Path(unquote(url.path)))
    if url.scheme in BUCKETS:
        if not url.netloc:
            raise ArchiveRefused(f"archive = {address!r} names no bucket")
        found = {**options_from_environment(url.scheme), **(options or {})}
        if endpoint:
            found["endpoint"] = endpoint
        if region:
            found["region"] = region
        return BucketStore(address.rstrip("/"), options=found, part_bytes=part_bytes)
    if url.scheme == "hdfs":
        return HdfsStore(
            address.rstrip("/"), options=options or {}, process_id=process_id or uuid4()
        )
    raise ArchiveRefused(f"archive = {address!r} does not begin with {SCHEMES}")
