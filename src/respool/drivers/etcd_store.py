"""Cluster metadata on etcd (v3, over gRPC): `ports.metadata_store` for many brokers.

Reads are linearizable, writes are transactions with guards by revision, and every call ends within
`request_timeout_ms`. A write whose answer did not come is reported as StoreUnavailable and never sent again by itself:
it may have happened. docs/adr tells why etcd is spoken to in this way.
"""

import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

from grpclib.const import Status

from respool.drivers import etcd_messages as msg
from respool.drivers.etcd_failures import CallFailed
from respool.drivers.etcd_members import EtcdMembers
from respool.drivers.etcd_options import EtcdOptions
from respool.drivers.etcd_watch import EtcdWatch, KeySpace
from respool.ports.metadata_store import (
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    EntryTooLarge,
    Guard,
    GuardFailed,
    KeyChanged,
    LeaseExpired,
    Snapshot,
    StoredValue,
    StoreUnavailable,
)

# Keys in one reply: few enough that taking them in does not hold up the event loop.
SNAPSHOT_PAGE_KEYS = 500
SNAPSHOT_TRIES_MAX = 3


class EtcdStore:
    """The keys of one cluster. Made by `connect`."""

    def __init__(self, options: EtcdOptions) -> None:
        self._options = options
        self._keys = KeySpace(options.cluster)
        self._members = EtcdMembers(options, root=self._keys.root)
        # The latest revision that etcd has told us of.
        self._revision = 0

    @classmethod
    async def connect(cls, options: EtcdOptions) -> "EtcdStore":
        """Log in, look at the version of every member that answers, and read something.

        Raises:
            EtcdRefused: wrong password, missing permission, bad files for TLS, or a version with known faults.
            StoreUnavailable: nobody answers.
        """
        store = cls(options)
        try:
            await store._members.get_ready()
            await store.get("/")
        except BaseException:
            await store.close()
            raise
        return store

    # -- reading -----------------------------------------------------------------------------------------------------

    async def get(self, key: str) -> StoredValue | None:
        seen = self._revision
        reply = await self._ask(msg.RANGE, msg.RangeAsk(key=self._keys.stored(key)))
        self._take_revision(reply.header, seen)
        for found in reply.kvs:
            return StoredValue(value=found.value, revision=found.mod_revision)
        return None

    async def snapshot(self, prefix: str) -> Snapshot:
        for _ in range(SNAPSHOT_TRIES_MAX):
            try:
                return await self._snapshot(prefix)
            except CallFailed as failure:
                # The revision of the first page was compacted before the last was read.
                if failure.status is not Status.OUT_OF_RANGE:
                    raise StoreUnavailable(f"etcd: {failure}") from failure
        raise StoreUnavailable(f"etcd is compacted faster than {prefix!r} can be read")

    async def _snapshot(self, prefix: str) -> Snapshot:
        first, end = self._keys.span(prefix)
        values: dict[str, StoredValue] = {}
        revision = 0
        while True:
            seen = self._revision
            page = await self._members.call(
                msg.RANGE,
                msg.RangeAsk(key=first, range_end=end, limit=SNAPSHOT_PAGE_KEYS, revision=revision),
            )
            now = self._take_revision(page.header, seen)
            revision = revision or now
            for found in page.kvs:
                key = self._keys.seen(found.key)
                if key.startswith(prefix):
                    values[key] = StoredValue(value=found.value, revision=found.mod_revision)
            if not page.more:
                ordered = {key: values[key] for key in sorted(values)}
                return Snapshot(revision=revision, values=ordered)
            first = page.kvs[-1].key + b"\x00"

    def watch(self, prefix: str, *, after_revision: int) -> AsyncIterator[KeyChanged]:
        return EtcdWatch(
            self._members, self._options, self._keys, prefix=prefix, after_revision=after_revision
        ).changes()

    # -- writing -----------------------------------------------------------------------------------------------------

    async def transact(
        self,
        *,
        guards: Sequence[Guard] = (),
        puts: Mapping[str, bytes] | None = None,
        deletes: Sequence[str] = (),
        lease: int | None = None,
    ) -> int:
        puts = dict(puts or {})
        assert puts.keys().isdisjoint(deletes), "a key is either put or deleted"
        for key, value in puts.items():
            _check_size(key, value)
        if lease is not None and not puts:
            # Nothing will hang on it, so etcd would not look.
            await self._check_lease(lease)
        ask = msg.TxnAsk(
            compare=tuple(self._compares(guards)),
            success=tuple(self._operations(puts, deletes, lease)),
            # To tell which guard failed.
            failure=tuple(self._look(guard.key) for guard in guards),
        )
        seen = self._revision
        try:
            reply = await self._members.call(msg.TXN, ask, is_repeatable=False)
        except CallFailed as failure:
            raise _refused_write(failure, ask, lease) from failure
        revision = self._take_revision(reply.header, seen)
        if not reply.succeeded:
            raise GuardFailed(_failed_guards(guards, reply))
        return revision

    def _compares(self, guards: Sequence[Guard]) -> Iterator[msg.Compare]:
        for guard in guards:
            yield msg.Compare(
                target=msg.COMPARE_MOD_REVISION,
                key=self._keys.stored(guard.key),
                mod_revision=guard.revision,
            )

    def _operations(
        self, puts: Mapping[str, bytes], deletes: Sequence[str], lease: int | None
    ) -> Iterator[msg.Operation]:
        for key, value in puts.items():
            yield msg.Operation(
                put=msg.PutAsk(key=self._keys.stored(key), value=value, lease=lease or 0)
            )
        for key in dict.fromkeys(deletes):
            yield msg.Operation(delete=msg.DeleteAsk(key=self._keys.stored(key)))
        if not puts and not deletes:
            # A transaction without any operation is answered by the member alone, which may be behind.
            yield self._look("/")

    def _look(self, key: str) -> msg.Operation:
        return msg.Operation(range=msg.RangeAsk(key=self._keys.stored(key), keys_only=True))

    # -- leases ------------------------------------------------------------------------------------------------------

    async def grant_lease(self, ttl_ms: int) -> int:
        """etcd counts in seconds, and has a shortest time of its own: a lease may live longer, never shorter."""
        assert ttl_ms > 0
        reply = await self._ask(msg.LEASE_GRANT, msg.LeaseGrantAsk(ttl_s=math.ceil(ttl_ms / 1000)))
        return reply.id

    async def keep_alive(self, lease: int) -> bool:
        reply = await self._ask(msg.LEASE_KEEP_ALIVE, msg.LeaseAsk(id=lease))
        return reply.ttl_s > 0

    async def revoke_lease(self, lease: int) -> None:
        try:
            await self._members.call(msg.LEASE_REVOKE, msg.LeaseAsk(id=lease))
        except CallFailed as failure:
            if failure.status is not Status.NOT_FOUND:
                raise StoreUnavailable(f"etcd: {failure}") from failure

    async def _check_lease(self, lease: int) -> None:
        reply = await self._ask(msg.LEASE_TIME_TO_LIVE, msg.LeaseAsk(id=lease))
        if reply.ttl_s <= 0:
            raise LeaseExpired(f"there is no lease {lease}")

    async def close(self) -> None:
        await self._members.close()

    def _take_revision(self, header: msg.Header | None, seen: int) -> int:
        """The reply's revision, which must not be before the one we had `seen` when we asked.

        Such a reply is stale, or etcd has forgotten what it had told. Acting on it could undo what others rely on.
        """
        assert header is not None
        if header.revision < seen:
            raise StoreUnavailable(
                f"etcd has gone back from revision {seen} to {header.revision}: it answers with stale data, or was "
                "emptied or restored from a backup. In that case stop all brokers before going on"
            )
        self._revision = max(self._revision, header.revision)
        return header.revision

    async def _ask(self, method: msg.Method[msg.Ask, msg.Reply], ask: msg.Ask) -> msg.Reply:
        """What changes nothing, or does no harm when done twice."""
        try:
            return await self._members.call(method, ask)
        except CallFailed as failure:
            raise StoreUnavailable(f"etcd: {failure}") from failure


def _failed_guards(guards: Sequence[Guard], reply: msg.TxnReply) -> str:
    told = []
    for guard, found in zip(guards, reply.responses, strict=True):
        kvs = found.range.kvs if found.range is not None else ()
        revision = kvs[0].mod_revision if kvs else 0
        if revision != guard.revision:
            told.append(f"{guard.key!r} is at revision {revision}, expected {guard.revision}")
    return "; ".join(told)


def _refused_write(failure: CallFailed, ask: msg.TxnAsk, lease: int | None) -> Exception:
    reason = str(failure)
    if failure.status is Status.NOT_FOUND:
        return LeaseExpired(f"there is no lease {lease}")
    if any(limit in reason for limit in ("too large", "larger than max", "too many operations")):
        return EntryTooLarge(
            f"transaction of {len(ask.compare)} guards and {len(ask.success)} changes: {reason}"
        )
    return StoreUnavailable(f"etcd: {reason}")


def _check_size(key: str, value: bytes) -> None:
    key_bytes = len(key.encode())
    if not 0 < key_bytes <= KEY_BYTES_MAX:
        raise EntryTooLarge(f"key of {key_bytes} bytes, limit {KEY_BYTES_MAX}: {key[:80]!r}")
    if len(value) > VALUE_BYTES_MAX:
        raise EntryTooLarge(f"{key!r}: value of {len(value)} bytes, limit {VALUE_BYTES_MAX}")
