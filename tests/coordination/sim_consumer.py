"""A world whose log can lag and lose its end, and a consumer of the next-generation protocol that lives in it."""

from typing import Any

from coordination.consumer_world import ConsumerWorld, beat_of, joining
from respool.coordination.decision import Decision, Ticket
from respool.coordination.groups.consumer.consumer_requests import ConsumerGroupHeartbeatReply
from respool.coordination.groups.consumer.partition_sets import PartitionSet
from respool.model.errors import RequestError


class LaggingConsumerWorld(ConsumerWorld):
    """Replies are held back until the log is committed; batches that are not committed can be lost, each as a whole."""

    def __init__(self, **settings: Any) -> None:
        self.is_lagging = False
        self.committed_end = 0
        # Where the batches that are not committed end.
        self._batch_ends: list[int] = []
        self._held: list[tuple[Ticket, Any]] = []
        super().__init__(**settings)

    def carry_out(self, decision: Decision) -> None:
        super().carry_out(Decision(records=decision.records, timers=decision.timers))
        if decision.records:
            self._batch_ends.append(len(self.log))
        self._held += ((answer.ticket, answer.reply) for answer in decision.answers)
        if not self.is_lagging:
            self.catch_up()

    def catch_up(self) -> None:
        self.committed_end = len(self.log)
        self._batch_ends.clear()
        for ticket, reply in self._held:
            assert ticket not in self.replies, "answered twice"
            self.replies[ticket] = reply
        self._held.clear()

    def crash(self, *, batches_kept: int) -> None:
        """The coordinator starts again with what was committed and a few batches more. Nobody is answered."""
        ends = [self.committed_end, *self._batch_ends]
        del self.log[ends[min(batches_kept, len(ends) - 1)] :]
        self._held.clear()
        self._batch_ends.clear()
        self.committed_end = len(self.log)
        self.reload()


class SimConsumer:
    """Uses what it was told once it gave up the rest, and tells the coordinator so. One request at a time."""

    def __init__(
        self,
        world: ConsumerWorld,
        member_id: str,
        *,
        topics: tuple[str, ...],
        pattern: str | None = None,
        instance_id: str | None = None,
    ) -> None:
        self._world = world
        self.member_id = member_id
        self.instance_id = instance_id
        self.topics = topics
        self.pattern = pattern
        self.is_alive = True
        self.epoch = 0
        self.uses: PartitionSet = {}
        self.told: PartitionSet = {}
        self.ticket: Ticket | None = None
        # Whether the last thing it sent was answered; if not, it says everything.
        self._is_sure = False
        self._said_topics: tuple[Any, ...] = ()

    def step(self) -> None:
        """Take the reply if it is there, act on it, and send the next heartbeat."""
        if not self.is_alive or not self.take_reply():
            return
        self.uses = self.told
        self.send()

    def send(self) -> None:
        words: dict[str, Any] = {}
        wanted = (self.topics, self.pattern)
        if self.epoch == 0:
            self.uses, self.told = {}, {}
        if self.epoch == 0 or not self._is_sure or wanted != self._said_topics:
            words = joining(*self.topics) | {"topic_pattern": self.pattern, "owned": self.uses}
        elif self.uses == self.told:
            # While it still gives something up it does not say what it has.
            words = {"owned": self.uses}
        self._said_topics = wanted
        self._is_sure = False
        request = beat_of(self.member_id, self.epoch, instance_id=self.instance_id, **words)
        self.ticket = self._world.ask(request)

    def take_reply(self) -> bool:
        """Whether it can go on: it waits for nothing any more."""
        if self.ticket is None:
            return True
        reply = self._world.replies.get(self.ticket)
        if reply is None:
            return False
        self.ticket = None
        self.on_reply(reply)
        return True

    def on_reply(self, reply: ConsumerGroupHeartbeatReply) -> None:
        self._is_sure = True
        if reply.error is not None:
            self.on_error(reply.error)
            return
        # Epochs never go back.
        assert reply.member_epoch >= max(1, self.epoch)
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self.told = reply.assignment

    def on_error(self, error: RequestError) -> None:
        del error
        self.epoch, self.uses, self.told = 0, {}, {}

    def lose_reply(self) -> None:
        """The reply, if any, never arrives."""
        self.ticket = None

    def kill(self) -> None:
        self.is_alive = False
        self.uses = {}

    def leave(self, epoch: int) -> None:
        self.kill()
        request = beat_of(self.member_id, epoch, instance_id=self.instance_id)
        self._world.ask(request)
