"""The topics deleted a moment ago, which a request for metadata does not create again.

A client that deletes a topic and asks for it until it is gone would otherwise create it with its first question, and so
would every consumer that has not noticed the deletion yet. A request to create the topic does so at once.

Every broker of a cluster sees the deletion in its image, so it makes no difference which one is asked.
"""

from respool.ports.clock import Clock

NOT_CREATED_MS = 10_000
# The oldest ones are forgotten first.
TOPICS_MAX = 10_000


class DeletedTopics:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # When each was deleted, oldest first.
        self._deleted_ms: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._deleted_ms)

    def __contains__(self, name: str) -> bool:
        """True if the topic was deleted within the last `NOT_CREATED_MS`."""
        deleted_ms = self._deleted_ms.get(name)
        return deleted_ms is not None and self._clock.monotonic_ms() - deleted_ms < NOT_CREATED_MS

    def on_deleted(self, name: str) -> None:
        now_ms = self._clock.monotonic_ms()
        self.forget(name)
        while self._deleted_ms and (
            len(self) >= TOPICS_MAX
            or now_ms - next(iter(self._deleted_ms.values())) >= NOT_CREATED_MS
        ):
            del self._deleted_ms[next(iter(self._deleted_ms))]
        self._deleted_ms[name] = now_ms

    def forget(self, name: str) -> None:
        """It may be created again at once."""
        self._deleted_ms.pop(name, None)
