"""A message of a queue: read by one consumer of the group at a time, until somebody accepts or rejects it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from respool.client.kafka.errors import ClientError
from respool.client.messages.message import Message
from respool.client.queues.queue_session import Acknowledgement, QueuePlace


class AlreadyAcknowledged(ClientError):
    """The message was accepted, released or rejected before."""


Acknowledge = Callable[["QueueMessage", Acknowledgement], None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QueueMessage(Message):
    """Acknowledge it with `accept`, `release` or `reject`; or use it in `with`: accepted, or released on an error.

    Until then it is locked for this consumer, and its lock is renewed in the background.
    """

    # How often the group got it: 1 at first.
    delivery_count: int
    place_in_queue: QueuePlace = field(repr=False)
    acknowledge: Acknowledge = field(repr=False)
    renew_now: Callable[["QueueMessage"], None] = field(repr=False)

    def accept(self) -> None:
        """It is done: the group never gets it again."""
        self.acknowledge(self, Acknowledgement.ACCEPT)

    def release(self) -> None:
        """Not now: another consumer may get it, after the group's pause if it has one."""
        self.acknowledge(self, Acknowledgement.RELEASE)

    def reject(self) -> None:
        """It cannot be handled: it ends, or becomes a dead letter if the group has a topic for these."""
        self.acknowledge(self, Acknowledgement.REJECT)

    def renew(self) -> None:
        """Extend the lock now. It is renewed in the background anyway, unless the group forbids it."""
        self.renew_now(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        try:
            self.acknowledge(
                self, Acknowledgement.ACCEPT if kind is None else Acknowledgement.RELEASE
            )
        except AlreadyAcknowledged:
            # The body has acknowledged it itself.
            return
