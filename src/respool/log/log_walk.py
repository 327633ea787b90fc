"""From header to header through a whole log, and what the headers tell: its producers, its leader epochs."""

from collections.abc import Iterator

from respool.log.epoch_cache import EpochCache
from respool.log.producer_states import ProducerStates
from respool.log.segments import Segments
from respool.model.ids import Offset
from respool.records.batch import BatchHeader


def walk_log(segments: Segments, begin: Offset, end: Offset) -> Iterator[BatchHeader]:
    """The headers of the batches that begin in [begin, end)."""
    if begin >= end:
        return
    for segment in segments.all[max(segments.index_of(begin), 0) :]:
        if segment.base_offset >= end:
            return
        for _, header in segment.walk_from(max(begin, segment.base_offset)):
            if header.base_offset >= end:
                return
            if header.base_offset >= begin:
                yield header


def replay_producers(
    producers: ProducerStates, segments: Segments, begin: Offset, end: Offset
) -> None:
    """Bring the producers from one offset to a later one."""
    for header in walk_log(segments, begin, end):
        producers.update(header, base_offset=header.base_offset)


def epochs_of(segments: Segments, begin: Offset, end: Offset) -> EpochCache:
    """The leader epochs in [begin, end), and some from before it."""
    epochs = EpochCache()
    # The batch that holds `begin` may begin before it.
    begin = segments.all[max(segments.index_of(begin), 0)].base_offset
    for header in walk_log(segments, begin, end):
        if header.leader_epoch > epochs.latest:
            epochs.assign(header.leader_epoch, header.base_offset)
    return epochs
