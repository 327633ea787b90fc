"""Mistakes that changes of a topic's partitions may have, made on purpose. As `planted_bugs.py`; each with a seed."""

from collections.abc import Mapping
from typing import Any

import pytest

from respool.broker.layouts import handover_notes
from respool.broker.layouts.group_reading import GroupReading
from respool.broker.layouts.succession import Succession
from respool.model.ids import Offset
from respool.model.layouts.partition_layout import ReaderHold
from sim.planted_bugs import Plant
from sim.planted_delay_bugs import Finder


def batches_keep_their_producer_ids(patch: pytest.MonkeyPatch) -> None:
    """Two sequences of one producer are in one log, without an alias."""
    patch.setattr(Succession, "id_in", lambda self, partition, producer_id: producer_id)


def readers_are_not_held(patch: pytest.MonkeyPatch) -> None:
    """It counts what a group could read, and not what it has committed."""
    patch.setattr(GroupReading, "is_behind", lambda self, ends: False)


def holds_hide_what_was_shown(patch: pytest.MonkeyPatch) -> None:
    """Readers are sent back to the beginning of the heir."""

    def hold(*, end: Offset, **more: Any) -> ReaderHold:
        return ReaderHold(end=Offset(end // 2), **more)

    patch.setattr(handover_notes, "ReaderHold", hold)


LAYOUT_PLANTS: Mapping[Plant, Finder] = {
    batches_keep_their_producer_ids: Finder(8),
    readers_are_not_held: Finder(14),
    holds_hide_what_was_shown: Finder(14),
}
QUICK_PLANT: Plant = batches_keep_their_producer_ids
