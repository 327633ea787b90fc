"""Determines which cluster may write to the archive: two clusters at one address would mix their records.

The newest `owner/<n>.json` says it. A restore takes the archive over with the next number; the previous owner notices
before its next write.
"""

import json

from respool.archive.object_keys import OWNER_PREFIX, owner_key, parse_numbered
from respool.model.archiving.archive_errors import ArchiveRefused, ArchiveUnavailable, ObjectMissing
from respool.model.ids import BrokerId
from respool.ports.clock import Clock
from respool.ports.object_store import Creation, ObjectStore, list_all
from respool.ports.random_source import RandomSource

# An owner may change while brokers of the former one run.
CHECK_MS = 300_000


class Ownership:
    def __init__(
        self,
        store: ObjectStore,
        *,
        cluster_id: str,
        broker: BrokerId,
        clock: Clock,
        rng: RandomSource,
    ) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._broker = broker
        self._clock = clock
        self._rng = rng
        self._valid_until_ms: int | None = None
        self._is_probed = False

    async def check(self) -> None:
        """Become the owner of an archive without one; call it before each write.

        Raises:
            ArchiveRefused: another cluster is the owner, or the store ignores conditions.
            ArchiveUnavailable: the store does not answer.
        """
        now_ms = self._clock.monotonic_ms()
        if self._valid_until_ms is not None and now_ms < self._valid_until_ms:
            return
        owner, number = await newest_owner(self._store)
        if owner is None:
            await self._probe()
            await self._claim(number + 1)
            owner, _ = await newest_owner(self._store)
        if owner != self._cluster_id:
            raise ArchiveRefused(
                f"{self._store.address} is the archive of cluster {owner}, this is cluster {self._cluster_id}: use "
                "another prefix; or, if that cluster is gone for ever, see `respool archive restore --take-over`"
            )
        self._valid_until_ms = now_ms + CHECK_MS

    async def _claim(self, number: int) -> None:
        content = owner_content(self._cluster_id, broker=self._broker, at_ms=self._clock.now_ms())
        # Whatever the outcome is, the newest one is read next.
        await self._store.create(owner_key(number), content)

    async def _probe(self) -> None:
        """Some S3-compatible servers ignore If-None-Match: of two creates of one key, both succeed there."""
        key = f"probe/{self._rng.uuid().hex}"
        outcomes = [await self._store.create(key, b"probe") for _ in range(2)]
        await self._store.delete([key])
        if outcomes[1] is Creation.CREATED and outcomes[0] is Creation.CREATED:
            raise ArchiveRefused(
                f"{self._store.address} ignores create-only writes (If-None-Match: *), on which the archive relies; "
                "upgrade that server, or use another one"
            )


async def newest_owner(store: ObjectStore) -> tuple[str | None, int]:
    """The owner's cluster id, None if there is none, and its number.

    Raises:
        ArchiveRefused: the owner cannot be read.
        ArchiveUnavailable: the store does not answer.
    """
    numbered = [
        (parsed[0], one.key)
        for one in await list_all(store, OWNER_PREFIX)
        if (parsed := parse_numbered(one.key)) is not None
    ]
    if not numbered:
        return None, 0
    number, key = max(numbered)
    try:
        return str(json.loads(bytes(await store.read(key)))["cluster"]), number
    except ObjectMissing as error:
        raise ArchiveUnavailable(f"{store.address}: {key} was listed, and is missing") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ArchiveRefused(f"{store.address}: {key} is damaged; nothing is written") from error


def owner_content(cluster_id: str, *, broker: BrokerId, at_ms: int) -> bytes:
    return json.dumps({"v": 1, "cluster": cluster_id, "broker": broker, "at_ms": at_ms}).encode()
