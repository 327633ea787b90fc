"""Copies spans of one topic into another, going on where an earlier run of the same replay stopped."""

import time

from respool.cli.consume_range import Cursor
from respool.cli.interrupts import CtrlC
from respool.cli.isolation import Isolation
from respool.cli.replay_position import Position, origin_of
from respool.cli.replay_run import CopyJob, CopyRun
from respool.cli.replay_writer import PositionLost
from respool.cli.topic_reader import TopicReader
from respool.model.operator_errors import OperatorError

# How often to look again when the target has something of this replay that cannot be read yet.
LOOKS_MAX = 50
LOOK_AGAIN_SECONDS = 0.2


class ReplayCopy:
    """One replay into a topic."""

    def __init__(self, job: CopyJob) -> None:
        self._job = job

    def run(self, position: Position, ctrl_c: CtrlC) -> Position:
        """Copy from that position (one recorded earlier, or the beginning) to the end, or until Ctrl-C.

        Returns how far it came. Whatever it raises, it can be run again.

        Raises:
            OperatorError: it cannot go on now; the message says why.
        """
        self._read_target(position)
        self._check_source(position)
        looks = 0
        while True:
            found = position.copied
            try:
                CopyRun(self._job, position).go(ctrl_c)
            except PositionLost as lost:
                position = self._read_anew(position)
                looks = 0 if position.copied > found else looks + 1
                if looks > LOOKS_MAX:
                    raise OperatorError(
                        f"{self._job.plan.into} does not take the next messages of this replay: {lost}",
                        hint="does another process run it? Or were copies deleted? --again makes a new copy",
                    ) from lost
                time.sleep(LOOK_AGAIN_SECONDS)
                continue
            return position

    def _read_anew(self, before: Position) -> Position:
        """The last batches of an earlier run arrived only now, or are there and cannot be read yet. Or a second run is
        at work; then nothing that was recorded tells what is in the target, so all of it is read."""
        position = Position(self._job.plan)
        position.done_below = dict(before.done_below)
        self._read_target(position)
        return position

    def _read_target(self, position: Position) -> None:
        """Find what this replay has in the target beyond what is known."""
        job = self._job
        into = job.cluster.topic(job.plan.into)
        # Copies are no part of any transaction. One of somebody else that is open there must not hide them.
        everything = Isolation.READ_UNCOMMITTED
        ranges = job.cluster.ranges([into], isolation=everything)
        cursors = {}
        for target, known in position.read_to.items():
            held = ranges.get((into.name, target))
            if held is None:
                raise OperatorError(f"{into.name}/{target} is not there, or nobody leads it")
            start = max(known, held.start)
            if held.end > start:
                cursors[target] = Cursor(position=start, stop=held.end, until_ms=None)
        if not cursors:
            return
        reader = TopicReader(job.cluster, into.name, cursors, follow=False, isolation=everything)
        try:
            for messages in reader.batches(None, CtrlC()):
                for message in messages:
                    origin = origin_of(message, job.replay_id)
                    if origin is not None:
                        position.on_copy(message.partition, origin, at_offset=message.offset)
        finally:
            reader.close()
        for target in cursors:
            end = ranges[into.name, target].end
            position.read_to[target] = max(position.read_to[target], end)

    def _check_source(self, position: Position) -> None:
        """What is still to be copied must be there still."""
        job = self._job
        topic = job.cluster.topic(job.plan.topic)
        ranges = job.cluster.ranges([topic])
        for source, span in job.plan.spans.items():
            next_offset = position.read_from(source)
            held = ranges.get((topic.name, source))
            if held is not None and next_offset < min(held.start, span.stop):
                raise OperatorError(
                    f"{topic.name}/{source} begins at offset {held.start} by now, and offsets from {next_offset} "
                    "were still to be copied: retention was faster",
                    hint="--again makes a new copy of what is left",
                )
