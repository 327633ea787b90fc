"""`since` and `until` as the command line reads them, through to the rows that a read returns."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import respool
from respool.client.kafka.errors import BadArgument
from respool.testing import Broker


def test_a_read_takes_the_command_lines_times() -> None:
    """They were refused, though `respool consume --since` took them."""
    now = datetime.now(UTC)
    days = [5, 4, 2, 1]
    table = pa.table(
        {
            "value": [str(one) for one in days],
            "timestamp": pa.array(
                [now - timedelta(days=one) for one in days], pa.timestamp("ms", "UTC")
            ),
        }
    )
    with Broker() as broker:
        broker.create_topic("rides")
        respool.write_table(table, "rides", bootstrap=broker.bootstrap)

        def values(since: str, until: str | None = None) -> list[bytes]:
            found = respool.read_table(
                "rides", bootstrap=broker.bootstrap, since=since, until=until
            )
            return [bytes(one) for one in found["value"].to_pylist()]

        assert values("3 days ago") == [b"2", b"1"]
        assert values("earliest", "36h ago") == [b"5", b"4", b"2"]
        assert values((now - timedelta(days=4, hours=1)).isoformat()) == [b"4", b"2", b"1"]
        with pytest.raises(BadArgument, match="the day before"):
            values("the day before")
