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
