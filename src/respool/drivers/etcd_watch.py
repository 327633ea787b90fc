"""A watch over all members: when the one it hangs on dies, it goes on elsewhere, after the last revision it has seen.

A member may be gone without a word (paused, cut off). So after a while of silence the watch asks for a sign of life,
and goes elsewhere when none comes; a member that lost the others ends it by itself, for it was told to have a leader.
"""

from collections.abc import AsyncIterator, Sequence

from respool.drivers import etcd_messages as msg
from respool.drivers.etcd_connection import WatchStream
from respool.drivers.etcd_failures import CallFailed, EtcdRefused, Verdict, refusal_to_user
from respool.drivers.etcd_member import EtcdMember
from respool.drivers.etcd_members import Attempts, EtcdMembers
from respool.drivers.etcd_options import EtcdOptions
from respool.ports.metadata_store import CompactedRevision, KeyChanged


class KeySpace:
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
        """First key and end of all keys with this prefix. For `""` and `"/"` there may be others among them."""
        first = self._root if prefix in {"", "/"} else self.stored(prefix)
        # No UTF-8 ends in 0xff, so this never overflows.
        return first, first[:-1] + bytes([first[-1] + 1])


_LOGIN_TROUBLE = (
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
        # All changes up to here have been handed on. Never backwards.
        self._revision = after_revision
        # Not None: it is broken and being mended.
        self._mending: Attempts | None = None
        # Members (by URL) that get a fresh login with the next try, or had one, since the watch broke.
        self._new_logins: set[str] = set()
        # The member has said that the watch stands.
        self._stands = False

    async def changes(self) -> AsyncIterator[KeyChanged]:
        """Every change, in order, without end.

        Raises:
            CompactedRevision: changes in between are gone.
            EtcdRefused: etcd refuses us.
            StoreUnavailable: nobody has anything to say for too long.
        """
        while True:
            member = self._members.chosen()
            try:
                await member.get_ready()
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
            self._mending = self._mending or Attempts(self._members, self._options)
            await self._mending.failed(member, why)

    def _create(self) -> msg.WatchCreate:
        first, end = self._keys.span(self._prefix)
        return msg.WatchCreate(key=first, range_end=end, start_revision=self._revision + 1)

    async def _next_reply(self, stream: WatchStream) -> msg.WatchReply:
        patience_ms = self._options.attempt_timeout_ms
        while self._stands:
            # One that is being mended has to prove itself at once.
            reply = await stream.next(0 if self._mending else self._options.watch_ping_ms)
            if reply is not None:
                return reply
            # Not by asking for progress: a watch that waits for a revision to come gets no answer to that.
            if not await stream.is_alive(patience_ms):
                raise CallFailed(f"the watch is silent for {patience_ms} ms", Verdict.UNKNOWN)
            self._is_mended()
        reply = await stream.next(patience_ms)
        if reply is None:
            raise CallFailed(f"the watch does not stand after {patience_ms} ms", Verdict.UNKNOWN)
        return reply

    def _take_in(self, reply: msg.WatchReply, member: EtcdMember) -> Sequence[KeyChanged]:
        if reply.compact_revision:
            raise CompactedRevision(
                f"changes before revision {reply.compact_revision} are gone, asked for those after {self._revision}"
            )
        if reply.canceled:
            self._on_canceled(reply.cancel_reason, member)
        if reply.created:
            self._stands = True
        else:
            self._is_mended()
        changes = [
            KeyChanged(
                key=self._keys.seen(event.kv.key),
                value=None if event.type == msg.EVENT_DELETE else event.kv.value,
                revision=event.kv.mod_revision,
            )
            for event in reply.events
            # A watch may repeat itself.
            if event.kv is not None and event.kv.mod_revision > self._revision
        ]
        if changes:
            # A reply holds whole revisions, so it is either handed on as a whole or asked for again as a whole.
            self._revision = changes[-1].revision
        return [change for change in changes if change.key.startswith(self._prefix)]

    def _is_mended(self) -> None:
        self._mending = None
        self._new_logins.clear()

    def _on_canceled(self, reason: str, member: EtcdMember) -> None:
        failure = CallFailed(f"the watch was ended: {reason or 'no reason given'}", Verdict.UNKNOWN)
        if any(trouble in reason for trouble in _LOGIN_TROUBLE):
            # Old servers say "permission denied" to a token that is no longer good. With a fresh one they mean it.
            if member.url in self._new_logins or not self._options.user:
                refusal = refusal_to_user(failure, user=self._options.user, root=self._keys.root)
                if refusal is not None:
                    raise refusal
            member.forget_login()
            self._new_logins.add(member.url)
        raise failure
