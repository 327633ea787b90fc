"""Messages that were fetched and not returned yet, and partitions of which none can be returned: `MessageBuffer`."""

from collections import deque
from collections.abc import Collection, Iterable

from respool.client.messages.errors import ClientError, ForeignRetry, ReceiveFailed, RetryRefused
from respool.client.messages.group_commits import HandledUpTo
from respool.client.messages.message import Message, Place, UndecodedMessage
from respool.client.messages.retry.group_retries import GroupRetries


class MessageBuffer:
    def __init__(self, progress: HandledUpTo) -> None:
        self._progress = progress
        self._messages: deque[Message] = deque()
        # Why nothing more of these partitions can be returned, until they are rewound.
        self._stuck: dict[Place, ClientError] = {}
        self.retries: GroupRetries | None = None

    def __bool__(self) -> bool:
        return bool(self._messages)

    def add(self, batch: Iterable[Message]) -> None:
        self._messages.extend(batch)

    def take(self, count: int) -> list[Message]:
        """Remove and return up to `count` messages; they are in hand from now on.

        Raises:
            ClientError: why a partition is stuck, if there is no message before that.
        """
        taken: list[Message] = []
        while self._messages and len(taken) < count:
            message = self._messages.popleft()
            try:
                found = self._received(message)
            except (ForeignRetry, ReceiveFailed, RetryRefused) as error:
                # Raised once the messages before it are returned.
                self.on_stuck(message.place, error)
                continue
            if found is not None:
                taken.append(found)
            self._progress.on_handed(message.place, message.offset)
        if not taken:
            self.raise_stuck()
        return taken

    def _received(self, message: Message) -> Message | None:
        if self.retries is not None:
            return self.retries.received(message)
        if isinstance(message, UndecodedMessage):
            raise undecoded(message)
        return message

    def firsts(self) -> dict[Place, int]:
        return first_offsets(self._messages)

    def drop(self, places: Collection[Place]) -> None:
        self._messages = deque(one for one in self._messages if one.place not in places)

    # -- partitions that are stuck

    def on_stuck(self, place: Place, error: ClientError) -> None:
        self._stuck[place] = error
        self.drop({place})

    def release(self, places: Iterable[Place]) -> None:
        """They are read from elsewhere now, by this member or another."""
        for place in places:
            self._stuck.pop(place, None)

    def raise_stuck(self) -> None:
        """
        Raises:
            ClientError: why a partition is stuck; again each time.
        """
        for error in self._stuck.values():
            raise error


def undecoded(message: UndecodedMessage) -> ReceiveFailed:
    topic, partition = message.place
    return ReceiveFailed(
        f"{topic}/{partition} has at offset {message.offset} a message with a header whose name is not UTF-8, which"
        " confluent-kafka cannot read. A consumer with retry= sends it to the dead letters; to skip it:"
        f" consumer.rewind({{({topic!r}, {partition}): {message.offset + 1}}})"
    )


def first_offsets(messages: Iterable[Message]) -> dict[Place, int]:
    firsts: dict[Place, int] = {}
    for one in messages:
        firsts.setdefault(one.place, one.offset)
    return firsts
