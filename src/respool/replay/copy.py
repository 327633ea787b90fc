"""Copies spans of one topic into another, and resumes where an earlier run of the same replay stopped."""

import time

from respool.replay.copy_plan import Span
from respool.replay.copy_position import CopyPosition, origin_of
from respool.replay.copy_run import Control, CopyJob, CopyRun
from respool.replay.errors import PositionLost, ReplayFailed
from respool.replay.record_reader import RecordRangeReader
from respool.replay.topic_lookup import check_leaders, describe_topic, held_spans

# How often to read the target again while it has copies of this replay that are not readable yet.
READS_MAX = 50
READ_AGAIN_SECONDS = 0.2


class ReplayCopy:
    """One replay into a topic."""

    def __init__(self, job: CopyJob) -> None:
        self._job = job

    def run(self, position: CopyPosition, control: Control) -> CopyPosition:
        """Copy from the position (a recorded one, or the beginning) to the end, or until a stop.

        Returns the position reached. After any exception it can be run again.

        Raises:
            ReplayError: the replay cannot continue now; the message has the reason.
        """
        self._read_target(position)
        self._check_source(position)
        reads = 0
        while True:
            found = position.copied
            try:
                CopyRun(self._job, position).run(control)
            except PositionLost as lost:
                position = self._read_all(position)
                reads = 0 if position.copied > found else reads + 1
                if reads > READS_MAX:
                    raise ReplayFailed(
                        f"{self._job.plan.into} does not take the next messages of this replay: {lost}",
                        hint="does another process run it, or were copies deleted? --again, from Python again=True, "
                        "makes a new copy",
                    ) from lost
                time.sleep(READ_AGAIN_SECONDS)
                continue
            return position

    def _read_all(self, before: CopyPosition) -> CopyPosition:
        """Read all copies in the target, because the recorded position does not cover them.

        Either the last batches of an earlier run arrived late or are not readable yet, or a second run is active.
        """
        position = CopyPosition(self._job.plan)
        position.done_below = dict(before.done_below)
        self._read_target(position)
        return position

    def _read_target(self, position: CopyPosition) -> None:
        """Find the copies of this replay beyond the known position."""
        job = self._job
        into = describe_topic(job.cluster, job.plan.into)
        check_leaders(job.cluster, into)
        missing = position.read_to.keys() - into.leaders.keys()
        if missing:
            raise ReplayFailed(f"{into.name} has no partition {min(missing)} any longer")
        # Copies are not transactional, so an open transaction of another producer must not hide them.
        held = held_spans(job.cluster, into.name, position.read_to, isolation="read_uncommitted")
        spans = {}
        for target, known in position.read_to.items():
            start = max(known, held[target].start)
            if held[target].stop > start:
                spans[target] = Span(start, held[target].stop)
        if not spans:
            return
        reader = RecordRangeReader(job.cluster, into.name, spans, isolation="read_uncommitted")
        try:
            for fetched in reader.batches():
                for target, records in fetched:
                    for record in records:
                        origin = origin_of(record, job.replay_id)
                        if origin is not None:
                            position.on_copy(target, origin, at_offset=record.offset)
        finally:
            reader.close()
        for target, span in spans.items():
            position.read_to[target] = max(position.read_to[target], span.stop)

    def _check_source(self, position: CopyPosition) -> None:
        """
        Raises:
            ReplayFailed: messages that are not copied yet were deleted.
        """
        job = self._job
        topic = describe_topic(job.cluster, job.plan.topic)
        led = [number for number in job.plan.spans if topic.leaders.get(number) is not None]
        held = held_spans(job.cluster, topic.name, led)
        for source in led:
            span, next_offset = job.plan.spans[source], position.read_from(source)
            if next_offset < min(held[source].start, span.stop):
                raise ReplayFailed(
                    f"{topic.name}/{source} begins at offset {held[source].start} by now, and offsets from "
                    f"{next_offset} were still to be copied: they were deleted, by retention or DeleteRecords",
                    hint="--again, from Python again=True, makes a new copy of what is left",
                )
