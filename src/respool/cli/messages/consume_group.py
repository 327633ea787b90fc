"""Reads a topic as a member of a consumer group: the group assigns partitions, and offsets are committed.

At least once: an offset is committed only after the messages before it were written. The caller reads again only
after writing what it got, so everything handed out before a `read` counts as written.

```
                 committed        written           position
  partition  ----|----------------|-----------------|----------
              at most a second ago   handed out, not yet written: read again after a crash
```
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from respool.cli import kafka_library, output
from respool.cli.connection_options import BrokerConnection
from respool.cli.interrupts import CtrlC
from respool.cli.messages.consume_range import RangeProgress, Until, all_done, group_offset
from respool.cli.messages.message_format import ReadMessage
from respool.cli.messages.topic_reader import POLL_SECONDS, TopicReader, plan
from respool.cli.options import Isolation
from respool.client.kafka.groups import GroupDescription
from respool.client.kafka.list_offsets import OffsetRange
from respool.client.kafka.metadata import TopicMetadata
from respool.model.operator_errors import OperatorError
from respool.model.seek_target import SeekTarget
from respool.operate.cluster_admin import ClusterAdmin
from respool.operate.errors import NobodyLeads, PartitionOffline
from respool.operate.group_operations import GroupOperations, GroupsUnknown

COMMIT_SECONDS = 1.0
COOPERATIVE = "cooperative-sticky"
NEXT_GENERATION = "consumer"


class GroupTopicReader(TopicReader):
    """Reads the partitions that the group assigns until all are done; before the first assignment, it is not done."""

    resume_hint = "run it again: the group continues where it stopped"

    def __init__(
        self,
        connection: BrokerConnection,
        admin: ClusterAdmin,
        topic: TopicMetadata,
        group: str,
        *,
        start: SeekTarget,
        start_option: str,
        until: Until,
        follow: bool,
        isolation: Isolation,
    ) -> None:
        """`start` applies to partitions without a committed offset; `start_option` is the option as it was given."""
        self._admin = admin
        self._group = group
        self._groups = GroupOperations(admin.cluster)
        self._info = topic
        self._retry_seconds = connection.retry_seconds
        self._start_option = start_option
        self._start = start
        self._until = until
        self._isolation = isolation
        self.cursors: dict[int, RangeProgress] = {}
        # Per assigned partition: every message before this offset was written, or does not have to be.
        self._written: dict[int, int] = {}
        # Offsets sent to the coordinator, and those that it has confirmed.
        self._sent: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._commit_due = 0.0
        self._is_spare = False
        self._is_closing = False
        how = _join_config(self._current_members())
        self._is_incremental = bool(how)
        super().__init__(
            connection,
            topic.name,
            self.cursors,
            follow=follow,
            isolation=isolation,
            group_id=group,
            **how,
        )

    def batches(self, messages_max: int | None, ctrl_c: CtrlC) -> Iterator[list[ReadMessage]]:
        yield from super().batches(messages_max, ctrl_c)
        # Not reached if writing failed: then the messages handed out last are not committed.
        self._mark_written()

    def read(self, messages_max: int, *, seconds: float = POLL_SECONDS) -> list[ReadMessage]:
        self._mark_written()
        if time.monotonic() >= self._commit_due:
            self._commit(asynchronous=True)
        return super().read(messages_max, seconds=seconds)

    def close(self) -> None:
        """Commit, and leave the group so that others get its partitions at once."""
        self._is_closing = True
        try:
            self._commit(asynchronous=False)
        finally:
            super().close()

    # -- called by the library, while it is polled -------------------------------------------------------------------

    def _attach(self) -> None:
        self._consumer.subscribe(
            [self._topic],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def _on_assign(self, consumer: Any, partitions: Sequence[Any]) -> None:
        numbers = sorted(each.partition for each in partitions)
        self._note(f"assigned {_named(numbers)}")
        with kafka_library.translated(self._broker):
            found = consumer.committed(list(partitions), timeout=self._retry_seconds)
            committed = {each.partition: each.offset for each in found if each.offset >= 0}
            cursors = self._plan_once_led(numbers, committed)
            assign = consumer.incremental_assign if self._is_incremental else consumer.assign
            assign(
                [
                    kafka_library.TopicPartition(self._topic, number, cursor.position)
                    for number, cursor in cursors.items()
                ]
            )
            done = [number for number in numbers if cursors[number].is_done]
            consumer.pause([kafka_library.TopicPartition(self._topic, number) for number in done])
        self._committed |= committed
        self._sent |= committed
        self.cursors |= cursors
        self._mark_written()

    def _on_revoke(self, consumer: Any, partitions: Sequence[Any]) -> None:
        del consumer
        if self._is_closing:
            return
        numbers = sorted(each.partition for each in partitions)
        self._commit(asynchronous=False)
        self._note(f"revoked {_named(numbers)}")
        self._drop(numbers)

    def _on_lost(self, consumer: Any, partitions: Sequence[Any]) -> None:
        """The group has rebalanced without this member, so a commit would be rejected."""
        del consumer
        numbers = sorted(each.partition for each in partitions)
        self._note(f"lost {_named(numbers)}; messages since the last commit are read again")
        self._drop(numbers)

    def _on_message_error(self, error: Any, raw: Any) -> None:
        if error.code() == kafka_library.POLLED_TOO_LATE:
            self._note("left, because nobody took the output for minutes; joining again")
            return
        super()._on_message_error(error, raw)

    # -- start offsets -----------------------------------------------------------------------------------------------

    def _plan_once_led(
        self, numbers: Sequence[int], committed: Mapping[int, int]
    ) -> dict[int, RangeProgress]:
        """After a broker died, groups and leaders move at once: retry while a partition has no leader."""
        deadline = time.monotonic() + self._retry_seconds
        while True:
            try:
                return self._plan(numbers, committed)
            except (NobodyLeads, PartitionOffline):
                if time.monotonic() >= deadline:
                    raise
                time.sleep(POLL_SECONDS)

    def _plan(
        self, numbers: Sequence[int], committed: Mapping[int, int]
    ) -> dict[int, RangeProgress]:
        # Fresh metadata: partitions may have been added since the start.
        topic = self._info = self._admin.topic(self._topic)
        unled = [number for number in numbers if topic.leaders.get(number) is None]
        if unled:
            raise self._admin.offline(topic, unled[0])
        # Up to the log end: the group may have committed beyond an open transaction, where a read_committed reader
        # stops.
        held = self._admin.ranges([topic], isolation="read_uncommitted")
        cursors = plan(
            self._admin,
            topic,
            numbers,
            start=self._start,
            until=self._until,
            follow=self._follow,
            isolation=self._isolation,
        )
        resumed = []
        for number, offset in committed.items():
            range_held = held[self._topic, number]
            at = group_offset(offset, low=range_held.start, log_end=range_held.end)
            if at is not None:
                cursors[number] = cursors[number].moved_to(at)
                resumed.append(number)
            if at != offset:
                self._note_moved(number, offset, range_held, cursors[number])
        if self._start_option and resumed:
            self._note(
                f"{self._start_option} counts only where nothing is committed; continuing at the committed offset in "
                f"{_named(resumed)} (to move the group: respool group reset)"
            )
        return cursors

    def _note_moved(
        self, number: int, committed: int, held: OffsetRange, cursor: RangeProgress
    ) -> None:
        self._note(
            f"committed offset {committed} of partition {number} is not there, it holds {held.start} up to {held.end}; "
            f"starting at {cursor.position}"
        )

    def _is_done(self) -> bool:
        if not self.cursors:
            return self._is_spare
        return all_done(self.cursors)

    def _on_silence(self) -> None:
        super()._on_silence()
        if not self._follow and not self.cursors:
            group = self._current_members()
            self._is_spare = group is not None and is_spare(
                group, self._consumer.memberid(), self._topic, self._info.partitions
            )
            if self._is_spare:
                self._note(f"assigned nothing: every partition of {self._topic} has another member")

    def _current_members(self) -> GroupDescription | None:
        # Only used to choose the protocol and to notice spare members; without it, the library reports its own errors.
        with suppress(GroupsUnknown):
            return self._groups.find(self._group)
        return None

    # -- commits -----------------------------------------------------------------------------------------------------

    def _mark_written(self) -> None:
        self._written = {number: cursor.position for number, cursor in self.cursors.items()}

    def _commit(self, *, asynchronous: bool) -> None:
        self._commit_due = time.monotonic() + COMMIT_SECONDS
        known = self._sent if asynchronous else self._committed
        due = {
            number: offset
            for number, offset in self._written.items()
            if known.get(number) != offset
        }
        if not due:
            return
        if self._lost and not asynchronous:
            # The library would wait for the coordinator for most of a minute and ignore Ctrl-C meanwhile.
            self._note("could not commit, the broker is away; some messages may be read again")
            return
        try:
            with kafka_library.translated(self._broker):
                self._consumer.commit(
                    offsets=[
                        kafka_library.TopicPartition(self._topic, number, offset)
                        for number, offset in due.items()
                    ],
                    asynchronous=asynchronous,
                )
        except OperatorError as error:
            if self._is_closing:
                raise type(error)(
                    f"the last offsets of group {self._group} were not committed: {error.message}",
                    hint="the messages since its last commit are read again",
                ) from error
            self._note(f"could not commit ({error.message}); some messages may be read again")
            return
        self._sent |= due
        if not asynchronous:
            self._committed |= due

    def _drop(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            for by_partition in (self.cursors, self._written, self._sent, self._committed):
                by_partition.pop(number, None)

    def _note(self, text: str) -> None:
        output.note(f"group {self._group}: {text}", style="dim")


def is_spare(group: GroupDescription, member_id: str, topic: str, partition_count: int) -> bool:
    """True if the group is stable and every partition of the topic is assigned to another member than this one.

    A member without partitions may also be waiting for others to revoke some for it.
    """
    owners = {
        member.member_id
        for member in group.members
        if any(name == topic for name, _ in member.partitions)
    }
    is_member = any(member.member_id == member_id for member in group.members)
    return (
        group.state == "Stable"
        and is_member
        and member_id not in owners
        and len(owners) >= partition_count
    )


def _join_config(group: GroupDescription | None) -> dict[str, str]:
    """The protocol and assignor of the group's members: it has one protocol, and eager and cooperative do not mix."""
    if group is None or not group.members:
        return {}
    if group.type == NEXT_GENERATION:
        return {"group_protocol": NEXT_GENERATION}
    if group.assignor == COOPERATIVE:
        return {"partition_assignment_strategy": COOPERATIVE}
    return {}


def _named(numbers: Sequence[int]) -> str:
    if not numbers:
        return "no partitions"
    return f"partition{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
