"""S3, Google Cloud Storage and Azure through obstore, in the extra `archive`.

The archive itself retries whole steps, so obstore retries little. It reports "already exists" for a
create whose own unanswered first attempt succeeded, and for a 409 that wrote nothing: callers must check.
"""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from respool.model.archiving.archive_errors import ArchiveRefused, ArchiveUnavailable, ObjectMissing
from respool.model.extras import how_to_install
from respool.ports.object_store import Creation, ObjectInfo

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Obstore

RETRIES_MAX = 2
RETRY_TIMEOUT_S = 10
REQUEST_TIMEOUT_S = 30
# Parts of one upload that are sent at the same time.
PARTS_AT_ONCE = 2
# At most this much of a listing is asked for at once: stores do not send more per page.
PAGE_KEYS_MAX = 1_000
# Failures of a write that certainly wrote nothing.
CERTAIN = frozenset({"clock", "missing_bucket", "denied"})


class BucketStore:
    def __init__(
        self, address: str, *, options: Mapping[str, str], part_bytes: int = 16 * 1024 * 1024
    ) -> None:
        """`options` are obstore's, such as `endpoint` and `region`; credentials come from the environment too.

        Raises:
            ArchiveRefused: obstore is missing, or does not understand the address or an option.
        """
        try:
            import obstore
            from obstore import exceptions, store
        except ImportError as error:
            raise ArchiveRefused(
                f"an archive at {address} needs obstore; {how_to_install('archive')}"
            ) from error
        self.address = address
        self._part_bytes = part_bytes
        self._obstore: Any = obstore
        self._errors: Any = exceptions
        # obstore raises Python's own classes for some of them.
        self._failures = (exceptions.BaseError, OSError)
        allow_http = options.get("endpoint", "").startswith("http:")
        try:
            self._store: Obstore = store.from_url(
                address,
                config=dict(options) or None,
                client_options={
                    "timeout": timedelta(seconds=REQUEST_TIMEOUT_S),
                    "allow_http": allow_http,
                },
                retry_config={
                    "max_retries": RETRIES_MAX,
                    "retry_timeout": timedelta(seconds=RETRY_TIMEOUT_S),
                },
            )
        except Exception as error:
            raise ArchiveRefused(f"archive = {address!r}: {_one_line(error)}") from error

    async def write(self, key: str, parts: AsyncIterator[bytes | memoryview]) -> None:
        writer = self._obstore.open_writer_async(
            self._store, key, buffer_size=self._part_bytes, max_concurrency=PARTS_AT_ONCE
        )
        try:
            # Not `async with`: its exit would complete the object even if the upload failed half way.
            async for part in parts:
                await writer.write(part)
            await writer.close()
        except self._failures as error:
            raise self._unavailable("write", key, error) from error

    async def create(self, key: str, content: bytes) -> Creation:
        try:
            await self._obstore.put_async(
                self._store, key, content, mode="create", use_multipart=False
            )
        except (self._errors.AlreadyExistsError, self._errors.PreconditionError):
            return Creation.EXISTS
        except self._failures as error:
            failure = self._unavailable("create", key, error)
            if failure.kind in CERTAIN:
                raise failure from error
            return Creation.UNKNOWN
        return Creation.CREATED

    async def read(self, key: str, begin: int = 0, end: int | None = None) -> bytes | memoryview:
        try:
            if end is None and not begin:
                result = await self._obstore.get_async(self._store, key)
                return memoryview(await result.bytes_async())
            if end is None:
                end = (await self._obstore.head_async(self._store, key))["size"]
            if end <= begin:
                return b""
            found = await self._obstore.get_range_async(self._store, key, start=begin, end=end)
            return memoryview(found)
        except (self._errors.NotFoundError, FileNotFoundError) as error:
            raise ObjectMissing(f"{self.address} has no object {key}") from error
        except self._failures as error:
            raise self._unavailable("read", key, error) from error

    async def list(self, prefix: str, *, after: str = "", limit: int = 1_000) -> list[ObjectInfo]:
        # obstore takes folders, not parts of names, as prefixes.
        folder = prefix.rpartition("/")[0]
        found: list[ObjectInfo] = []
        try:
            stream = self._obstore.list(
                self._store, folder or None, offset=after or None, chunk_size=PAGE_KEYS_MAX
            )
            async for page in stream:
                found += [
                    ObjectInfo(one["path"], one["size"], _ms(one["last_modified"]))
                    for one in page
                    if one["path"].startswith(prefix) and one["path"] > after
                ]
                if len(found) >= limit:
                    break
        except self._failures as error:
            raise self._unavailable("list", prefix, error) from error
        return sorted(found)[:limit]

    async def delete(self, keys: Sequence[str]) -> None:
        if not keys:
            return
        try:
            await self._obstore.delete_async(self._store, list(keys))
        except (self._errors.NotFoundError, FileNotFoundError):
            if len(keys) > 1:
                # It is unknown which one was missing, and later ones were not deleted.
                for key in keys:
                    await self.delete([key])
        except self._failures as error:
            raise self._unavailable("delete", keys[0], error) from error

    async def close(self) -> None:
        pass

    def _unavailable(self, call: str, key: str, error: Exception) -> ArchiveUnavailable:
        text = _one_line(error)
        return ArchiveUnavailable(f"{self.address}: {call} {key}: {text}", kind=kind_of(text))


def kind_of(text: str) -> str:
    """The kind of a failure, from the text of the error: obstore has one class for most of them."""
    lower = text.lower()
    for kind, words in _KINDS.items():
        if any(word in lower for word in words):
            return kind
    return "failed"


_KINDS = {
    "clock": ("requesttimetooskewed", "requestexpired", "clock"),
    "missing_bucket": ("nosuchbucket", "containernotfound", "bucket does not exist"),
    "denied": (
        "accessdenied",
        "forbidden",
        "invalidaccesskey",
        "signaturedoesnotmatch",
        "unauthorized",
        "permission",
    ),
    "throttled": ("slowdown", "503", "429", "toomanyrequests", "throttl"),
    "timeout": ("timed out", "timeout"),
    "unreachable": ("connect", "dns", "unreachable"),
}


def options_from_environment(scheme: str) -> dict[str, str]:
    """Options that obstore does not read from the environment."""
    if scheme == "s3" and (endpoint := os.environ.get("AWS_ENDPOINT_URL")):
        return {"endpoint": endpoint}
    return {}


def _ms(when: datetime) -> int:
    return int(when.astimezone(UTC).timestamp() * 1000)


def _one_line(error: BaseException) -> str:
    """The first line of obstore's message; the rest is a dump of its state."""
    return " ".join(str(error).split("\n\n")[0].split())[:500]
