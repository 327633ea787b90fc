"""What a simulated producer takes for a loss, and what not."""

from respool.model.ids import TopicPartition
from respool.sim.clients.producers import SentBatch, lost_before_one_of
from respool.sim.clients.sim_client import OK, OUT_OF_ORDER_SEQUENCE

RIDES, FARES = TopicPartition("rides", 0), TopicPartition("fares", 0)
NOT_LEADER = 6


def batch(name: TopicPartition) -> SentBatch:
    return SentBatch(name, [], b"", 0.0)


def test_a_broker_that_does_not_know_what_it_acknowledged_has_lost_it() -> None:
    sent = [batch(FARES), batch(RIDES)]
    assert lost_before_one_of(sent, [OK, OUT_OF_ORDER_SEQUENCE]) is sent[1]
    assert lost_before_one_of(sent, [OK, NOT_LEADER]) is None


def test_a_batch_that_overtook_another_shows_no_loss() -> None:
    """Found by seed 1001750: the one in front went to the leader before, and was acknowledged by the new one later."""
    sent = [batch(RIDES), batch(FARES), batch(RIDES)]
    assert lost_before_one_of(sent, [OK, OK, OUT_OF_ORDER_SEQUENCE]) is None
    assert lost_before_one_of(sent, [NOT_LEADER, OK, OUT_OF_ORDER_SEQUENCE]) is None
