"""What a topic deleted before a table had it."""

import pytest

from respool.pipeline.job_errors import EventsGone
from respool.pipeline.losses import lost

FIRST = {0: 10, 1: 0, 2: 7, 3: 9}
# Read up to 4, nothing yet, as far as the log begins, beyond its start.
KNOWN = {0: 4, 1: None, 2: 7, 3: 12}


def test_events_deleted_before_they_were_read_end_the_job_with_their_offsets() -> None:
    with pytest.raises(EventsGone, match=r"partition 0: offsets 4 to 9\).*--accept-loss"):
        lost("rides", FIRST, KNOWN, is_accepted=False, table="bronze")


def test_a_loss_that_is_accepted_is_counted() -> None:
    assert lost("rides", FIRST, KNOWN, is_accepted=True, table="bronze") == {0: 6}


def test_a_table_that_has_read_nothing_yet_has_lost_nothing() -> None:
    assert lost("rides", FIRST, dict.fromkeys(FIRST), is_accepted=False, table="bronze") == {}
