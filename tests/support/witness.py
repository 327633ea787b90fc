"""A well-behaved client beside the hostile ones: whatever they do, it is served, and loses nothing."""

from respool.records.build import NewRecord, build_batch
from support.broker_process import BrokerProcess
from support.raw_client import RawClient
from support.stored import stored_batches
from support.topics import Topics


class Witness:
    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._topic = Topics(broker.address).new("witness")
        self._count = 0

    def testify(self) -> None:
        """The broker lives; it takes a message from a new connection, and still has all those before."""
        assert self._broker.is_running, f"the broker has ended\n{self._broker.log[-4000:]}"
        with RawClient(self._broker.address) as client:
            batch = build_batch([NewRecord(value=b"%d" % self._count)])
            answer = client.produce(self._topic, batch)
            assert (answer.error_code, answer.base_offset) == (0, self._count)
            self._count += 1
            fetched = client.fetch(self._topic)
            assert fetched.error_code == 0
            assert fetched.high_watermark == self._count
            stored = stored_batches(self._broker.data, (self._topic, 0))
            assert sum(one.size for one in stored) == len(fetched.records)
