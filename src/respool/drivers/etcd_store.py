"""Cluster metadata on etcd (v3, over gRPC): `ports.metadata_store` for a cluster.

Reads are linearizable, writes are transactions with guards by revision, and every call ends within
`request_timeout_ms`. A write without a reply raises StoreUnavailable and is never repeated here: it may have been
executed. docs/adr explains why etcd is accessed in this way.
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
    EntryTooLarge,
    Guard,
    GuardFailed,
    KeyChanged,
    LeaseExpired,
    Snapshot,
    StoredValue,
    StoreUnavailable,
    checked_puts,
)

# Keys per response: few enough not to block the event loop.
SNAPSHOT_PAGE_KEYS = 500
SNAPSHOT_TRIES_MAX = 3


class EtcdStore:
    """The keys of one cluster. Created by `connect`."""

    def __init__(self, options: EtcdOptions) -> None:
        self._options = options
        self._keys = KeySpace(options.cluster)
        self._members = EtcdMembers(options, root=self._keys.root)
        # The latest revision received from etcd.
        self._revision = 0

    @classmethod
    async def connect(cls, options: EtcdOptions) -> "EtcdStore":
        """Log in, check the version of every reachable member, and read once.

        Raises:
            EtcdRefused: wrong password, missing permission, unusable TLS files, or a version with known faults.
            StoreUnavailable: no member replies.
        """
        store = cls(options)
        try:
            await store._members.prepare()
            await store.get("/")
        except BaseException:
            await store.close()
            raise
        return store

    # -- reading -----------------------------------------------------------------------------------------------------

    async def get(self, key: str) -> StoredValue | None:
        seen = self._revision
        reply = await self._ask(msg.RANGE, msg.RangeRequest(key=self._keys.stored(key)))
        self._take_revision(reply.header, seen)
        for found in reply.kvs:
            return StoredValue(value=found.value, revision=found.mod_revision)
        return None

    async def snapshot(self, prefix: str) -> Snapshot:
        for _ in range(SNAPSHOT_TRIES_MAX):
            try:
                return await self._snapshot(prefix)
            except CallFailed as failure:
                # The first page's revision was compacted before the last page was read.
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
                msg.RangeRequest(
                    key=first, range_end=end, limit=SNAPSHOT_PAGE_KEYS, revision=revision
                ),
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
        puts = checked_puts(puts, deletes)
        if lease is not None and not puts:
            # Without a put, etcd would not check the lease.
            await self._check_lease(lease)
        ask = msg.TxnRequest(
            compare=tuple(self._compares(guards)),
            success=tuple(self._operations(puts, deletes, lease)),
            # To find out which guard failed.
            failure=tuple(self._look(guard.key) for guard in guards),
        )
        seen = self._revision
        try:
            reply = await self._members.call(msg.TXN, ask, is_repeatable=False)
        except CallFailed as failure:
            raise _rejected_write(failure, ask, lease) from failure
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
    ) -> Iterator[msg.RequestOp]:
        for key, value in puts.items():
            yield msg.RequestOp(
                put=msg.PutRequest(key=self._keys.stored(key), value=value, lease=lease or 0)
            )
        for key in dict.fromkeys(deletes):
            yield msg.RequestOp(delete=msg.DeleteRangeRequest(key=self._keys.stored(key)))
        if not puts and not deletes:
            # A transaction without operations is answered by the member alone, which may lag.
            yield self._look("/")

    def _look(self, key: str) -> msg.RequestOp:
        return msg.RequestOp(range=msg.RangeRequest(key=self._keys.stored(key), keys_only=True))

    # -- leases ------------------------------------------------------------------------------------------------------

    async def grant_lease(self, ttl_ms: int) -> int:
        """etcd uses whole seconds and has a minimum: a lease may live longer, never shorter."""
        assert ttl_ms > 0
        reply = await self._ask(
            msg.LEASE_GRANT, msg.LeaseGrantRequest(ttl_s=math.ceil(ttl_ms / 1000))
        )
        return reply.id

    async def keep_alive(self, lease: int) -> bool:
        reply = await self._ask(msg.LEASE_KEEP_ALIVE, msg.LeaseRequest(id=lease))
        return reply.ttl_s > 0

    async def revoke_lease(self, lease: int) -> None:
        try:
            await self._members.call(msg.LEASE_REVOKE, msg.LeaseRequest(id=lease))
        except CallFailed as failure:
            if failure.status is not Status.NOT_FOUND:
                raise StoreUnavailable(f"etcd: {failure}") from failure

    async def _check_lease(self, lease: int) -> None:
        reply = await self._ask(msg.LEASE_TIME_TO_LIVE, msg.LeaseRequest(id=lease))
        if reply.ttl_s <= 0:
            raise LeaseExpired(f"there is no lease {lease}")

    async def close(self) -> None:
        await self._members.close()

    def _take_revision(self, header: msg.ResponseHeader | None, seen: int) -> int:
        """Check and return the response's revision, which must not be before the `seen` one of the request.

        An older one is stale, or etcd has lost data. Acting on it could undo what others rely on.
        """
        assert header is not None
        if header.revision < seen:
            raise StoreUnavailable(
                f"etcd went back from revision {seen} to {header.revision}: it returns stale data, or was "
                "emptied or restored from a backup. In that case stop all brokers before you continue"
            )
        self._revision = max(self._revision, header.revision)
        return header.revision

    async def _ask(
        self, method: msg.Method[msg.Request, msg.Response], ask: msg.Request
    ) -> msg.Response:
        """For idempotent calls."""
        try:
            return await self._members.call(method, ask)
        except CallFailed as failure:
            raise StoreUnavailable(f"etcd: {failure}") from failure


def _failed_guards(guards: Sequence[Guard], reply: msg.TxnResponse) -> str:
    told = []
    for guard, found in zip(guards, reply.responses, strict=True):
        kvs = found.range.kvs if found.range is not None else ()
        revision = kvs[0].mod_revision if kvs else 0
        if revision != guard.revision:
            told.append(f"{guard.key!r} is at revision {revision}, expected {guard.revision}")
    return "; ".join(told)


def _rejected_write(failure: CallFailed, ask: msg.TxnRequest, lease: int | None) -> Exception:
    reason = str(failure)
    if failure.status is Status.NOT_FOUND:
        return LeaseExpired(f"there is no lease {lease}")
    if any(limit in reason for limit in ("too large", "larger than max", "too many operations")):
        return EntryTooLarge(
            f"transaction of {len(ask.compare)} guards and {len(ask.success)} changes: {reason}"
        )
    return StoreUnavailable(f"etcd: {reason}")
