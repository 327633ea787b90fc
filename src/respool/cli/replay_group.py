"""`respool replay … --group NEW`: a consumer group of its own that begins in the past, and knows where it should end.

Nothing is copied. The group's offsets are set to the beginning of the span; beside each offset stands, as its
metadata, where the replay ends and which one it is. Whoever consumes as this group stops there himself.
"""

from collections.abc import Mapping, Sequence

from respool.cli import output
from respool.cli.audit import DONE, FAILED, Act, Audit
from respool.cli.kafka import Cluster
from respool.cli.kafka_groups import Group, Groups
from respool.cli.replay_plan import Span, Wish
from respool.cli.replay_range import TimeRange, print_spans
from respool.client.kafka.groups import Committed, Place
from respool.model.operator_errors import OperatorError


class GroupTaken(OperatorError):
    """The group is somebody else's, or in use."""


class ReplayGroup:
    def __init__(self, cluster: Cluster, audit: Audit, *, as_json: bool) -> None:
        self._groups = Groups(cluster)
        self._audit = audit
        self._as_json = as_json

    def begin(
        self,
        wish: Wish,
        spans: Mapping[int, Span],
        span_of_time: TimeRange,
        *,
        acts: Sequence[Act],
        again: bool,
    ) -> None:
        """Set the group up, unless an earlier run has done it.

        Raises:
            GroupTaken: the group has members, or offsets that no replay like this one has set.
        """
        assert wish.group is not None
        before = self._last_of(wish, acts)
        group = self._groups.find(wish.group)
        # Asked for whether it was listed or not: the broker that has it may just not have said so.
        committed = self._groups.committed(wish.group)
        if committed and before is None:
            raise GroupTaken(
                f"group {wish.group} has read something already, and a replay leaves such groups alone",
                hint="name a new group; or move this one: respool group reset --to-time",
            )
        if before is not None and committed and not again:
            self._show(before, _spans_of(before), committed, already=True)
            return
        _check_empty(wish.group, group)
        act = Act.begin(
            kind="replay",
            source=wish.topic,
            target=f"group {wish.group}",
            from_text=span_of_time.from_text,
            to_text=span_of_time.to_text,
            messages=sum(span.messages for span in spans.values()),
            details={
                "fingerprint": wish.fingerprint,
                "wish": wish.to_document(),
                "spans": {str(number): list(span) for number, span in spans.items()},
            },
        )
        self._audit.write(act)
        places = {
            (wish.topic, number): Committed(offset=span.start, metadata=_note(act, span))
            for number, span in spans.items()
        }
        try:
            self._groups.commit(wish.group, places)
        except OperatorError as error:
            self._audit.write(act.now(state=FAILED, outcome=error.message))
            raise
        act = act.now(state=DONE, outcome=f"group {wish.group} begins there")
        self._audit.write(act)
        self._show(act, spans, places, already=False)

    def _last_of(self, wish: Wish, acts: Sequence[Act]) -> Act | None:
        """The replay that has set this group up, if it was one like this."""
        alike = [act for act in acts if act.details.get("fingerprint") == wish.fingerprint]
        return alike[-1] if alike else None

    def _show(
        self,
        act: Act,
        spans: Mapping[int, Span],
        committed: Mapping[Place, Committed],
        *,
        already: bool,
    ) -> None:
        group = act.target.removeprefix("group ")
        left = 0
        for number, span in spans.items():
            place = committed.get((act.source, number))
            left += max(0, span.stop - max(place.offset if place else span.start, span.start))
        if self._as_json:
            output.print_json(
                {
                    "id": act.id,
                    "group": group,
                    "topic": act.source,
                    "messages": left,
                    "partitions": [
                        {"partition": number, "from": span.start, "to": span.stop}
                        for number, span in sorted(spans.items())
                    ],
                }
            )
            return
        print_spans(act.source, spans)
        if already:
            output.note(
                f"replay {act.id} has set group {group} up already; {output.counted(left, 'message')} left up to its "
                "end. --again takes it back to the beginning"
            )
            return
        output.note(
            f"replay {act.id}: a consumer with group.id={group} begins at 'from' in each partition, and has read the "
            f"replay ({output.counted(left, 'message')}) when it is at 'until'; what comes after is not part of it"
        )


def _note(act: Act, span: Span) -> str:
    """What stands beside an offset: `int(note.split()[1])` is the end, with every client.

    The zero byte is for librdkafka, which copies notes without one, and for its bindings, which read them up to one:
    without it they show what lies behind in memory, or fail to decode that. The number stands first so that a client
    that shows the zero byte can be asked for it in the same way.
    """
    return f"until {span.stop} of respool-replay {act.id}\0"


def _check_empty(name: str, group: Group | None) -> None:
    if group is not None and group.members:
        raise GroupTaken(
            f"group {name} has {output.counted(len(group.members), 'member')} "
            f"({', '.join(member.client_id for member in group.members)})",
            hint="name a new group, or stop its consumers",
        )


def _spans_of(act: Act) -> dict[int, Span]:
    return {int(number): Span(*span) for number, span in act.details["spans"].items()}
