"""A watch over all members: if its member fails, it continues on another one, after the last revision received.

A member may be gone silently (paused, partitioned). So after a period of silence the watch checks whether its member is
alive, and switches if not; a member that lost the others ends the watch by itself, because watches require a leader.
"""

from collections.abc import AsyncIterator, Sequence

from respool.drivers import etcd_messages as msg
from respool.drivers.etcd_connection import WatchStream
from respool.drivers.etcd_failures import CallFailed, EtcdRefused, FailureKind, refusal_for_operator
from respool.drivers.etcd_member import EtcdMember
from respool.drivers.etcd_members import CallAttempts, EtcdMembers
from respool.drivers.etcd_options import EtcdOptions
from respool.ports.metadata_store import CompactedRevision, KeyChanged


class KeySpace:
    """Maps keys of the store to etcd's, below `/respool/<cluster>/`, which only this driver sees.

    A key with a leading slash is appended without it, `/brokers/1` as `/respool/<cluster>/brokers/1`; one without gets
    a second slash, so that the two cannot collide.
    """

    def __init__(self, cluster: str) -> None:
        self.root = f"/respool/{cluster}/"
        self._root = self.root.encode()

    def stored(self, key: str) -> bytes:
        assert not key.startswith("//"), key
        tail = key[1:] if key.startswith("/") else f"/{key}"
        return self._root + tail.encode(errors="surrogateescape")

    def seen(self, stored: bytes) -> str:
        tail = stored.removeprefix(self._root).decode(errors="surrogateescape")
        return tail[1:] if tail.startswith("/") else f"/{tail}"

    def span(self, prefix: str) -> tuple[bytes, bytes]:
        """First key and end of all keys with this prefix. For `""` and `"/"` others may be among them."""
        first = self._root if prefix in {"", "/"} else self.stored(prefix)
        # No UTF-8 text ends with 0xff, so this never overflows.
        return first, first[:-1] + bytes([first[-1] + 1])


_LOGIN_ERRORS = (
    "invalid auth token",
    "auth store is old",
    "user name is empty",
    "permission denied",
)


class EtcdWatch:
    def __init__(
        self,
        members: EtcdMembers,
        options: EtcdOptions,
        keys: KeySpace,
        *,
        prefix: str,
        after_revision: int,
    ) -> None:
        assert after_revision >= 0
        self._members = members
        self._options = options
        self._keys = keys
        self._prefix = prefix
        # All changes up to here were yielded. Never decreases.
        self._revision = after_revision
        # Not None: the watch is broken and being repaired.
        self._mending: CallAttempts | None = None
        # Members (by URL) with a new login since the watch broke.
        self._new_logins: set[str] = set()
        # The member has confirmed the watch.
        self._stands = False

    async def changes(self) -> AsyncIterator[KeyChanged]:
        """Yield every change, in order, without end.

        Raises:
            CompactedRevision: changes in between are gone.
            EtcdRefused: etcd rejects this client.
            StoreUnavailable: no member replied for too long.
        """
        while True:
            member = self._members.chosen()
            try:
                await member.prepare()
                stream = member.watch(self._create())
                self._stands = False
                try:
                    while True:
                        for change in self._take_in(await self._next_reply(stream), member):
                            yield change
                finally:
                    await stream.close()
            except (CallFailed, EtcdRefused) as failure:
                why = failure
            self._mending = self._mending or CallAttempts(self._members, self._options)
            await self._mending.failed(member, why)

    def _create(self) -> msg.WatchCreateRequest:
        first, end = self._keys.span(self._prefix)
        return msg.WatchCreateRequest(key=first, range_end=end, start_revision=self._revision + 1)

    async def _next_reply(self, stream: WatchStream) -> msg.WatchResponse:
        patience_ms = self._options.attempt_timeout_ms
        while self._stands:
            # While it is being repaired, check at once.
            reply = await stream.next(0 if self._mending else self._options.watch_ping_ms)
            if reply is not None:
                return reply
            # Not by a progress request: a watch for a future revision gets no reply to that.
            if not await stream.is_alive(patience_ms):
                raise CallFailed(f"the watch is silent for {patience_ms} ms", FailureKind.UNKNOWN)
            self._on_repaired()
        reply = await stream.next(patience_ms)
        if reply is None:
            raise CallFailed(
                f"the watch was not confirmed within {patience_ms} ms", FailureKind.UNKNOWN
            )
        return reply

    def _take_in(self, reply: msg.WatchResponse, member: EtcdMember) -> Sequence[KeyChanged]:
        if reply.compact_revision:
            raise CompactedRevision(
                f"changes before revision {reply.compact_revision} are gone, requested: those after {self._revision}"
            )
        if reply.canceled:
            self._on_canceled(reply.cancel_reason, member)
        if reply.created:
            self._stands = True
        else:
            self._on_repaired()
        changes = [
            KeyChanged(
                key=self._keys.seen(event.kv.key),
                value=None if event.type == msg.EVENT_DELETE else event.kv.value,
                revision=event.kv.mod_revision,
            )
            for event in reply.events
            # A watch may repeat changes.
            if event.kv is not None and event.kv.mod_revision > self._revision
        ]
        if changes:
            # A response contains whole revisions, so it is yielded as a whole or requested again as a whole.
            self._revision = changes[-1].revision
        return [change for change in changes if change.key.startswith(self._prefix)]

    def _on_repaired(self) -> None:
        self._mending = None
        self._new_logins.clear()

    def _on_canceled(self, reason: str, member: EtcdMember) -> None:
        failure = CallFailed(
            f"the watch was ended: {reason or 'no reason given'}", FailureKind.UNKNOWN
        )
        if any(problem in reason for problem in _LOGIN_ERRORS):
            # Old servers return "permission denied" for an invalid token. With a new token it means what it says.
            if member.url in self._new_logins or not self._options.user:
                refusal = refusal_for_operator(
                    failure, user=self._options.user, root=self._keys.root
                )
                if refusal is not None:
                    raise refusal
            member.discard_login()
            self._new_logins.add(member.url)
        raise failure
