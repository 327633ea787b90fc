from dataclasses import replace

import pytest

from replication.builders import (
    EPOCH,
    FOUR,
    LAG_MS,
    ONE,
    THREE,
    TWO,
    append,
    brokers_of,
    fetch,
    image_of,
    leader_of,
    proposal_in,
)
from respool.model.cluster import BrokerEndpoint
from respool.model.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeader,
    UnknownLeaderEpoch,
)
from respool.model.ids import BrokerId, LeaderEpoch, Offset
from respool.replication.effects import (
    BeginEpoch,
    HighWatermarkMoved,
    IsrChanged,
    LeaderEffect,
    LowWatermarkMoved,
    ProposeIsr,
    SteppedDown,
)
from respool.replication.leader import Leader, may_lead

# -- what is committed


def test_high_watermark_waits_for_the_slowest_in_sync_replica() -> None:
    leader = leader_of(image_of(ONE, TWO, THREE))
    assert append(leader, 10) == []
    assert fetch(leader, TWO, 10) == []
    assert fetch(leader, THREE, 7) == [HighWatermarkMoved(high_watermark=Offset(7))]


def test_high_watermark_does_not_wait_for_a_replica_out_of_sync() -> None:
    leader = leader_of(image_of(ONE, TWO, THREE, isr=(ONE, TWO)))
    append(leader, 10)
    assert fetch(leader, TWO, 10) == [HighWatermarkMoved(high_watermark=Offset(10))]


def test_a_leader_alone_has_committed_what_is_durable() -> None:
    leader = leader_of(image_of(ONE))
    assert leader.on_append(Offset(10)) == []
    assert leader.on_durable(Offset(4)) == [HighWatermarkMoved(high_watermark=Offset(4))]


def test_the_leaders_own_records_count_when_they_are_durable() -> None:
    leader = leader_of(image_of(ONE, TWO))
    leader.on_append(Offset(10))
    assert fetch(leader, TWO, 10) == []
    assert leader.on_durable(Offset(6)) == [HighWatermarkMoved(high_watermark=Offset(6))]


def test_high_watermark_never_goes_back() -> None:
    leader = leader_of(image_of(ONE, TWO))
    append(leader, 10)
    fetch(leader, TWO, 10)
    fetch(leader, TWO, 3)
    assert leader.high_watermark == 10


def test_nothing_is_committed_while_too_few_are_in_sync() -> None:
    leader = leader_of(image_of(ONE, TWO, isr=(ONE,)), min_isr=2)
    assert append(leader, 10) == []
    assert leader.high_watermark == 0


def test_nothing_is_committed_while_some_are_eligible_outside_the_isr() -> None:
    # Under min.insync.replicas=2 they would be; it was lowered to 1.
    image = image_of(ONE, TWO, isr=(ONE,), elr=(TWO,))
    leader = leader_of(image, min_isr=1)
    assert append(leader, 10) == []
    cleared = replace(image, elr=(), revision=11)
    assert HighWatermarkMoved(high_watermark=Offset(10)) in leader.on_image(cleared)


def test_the_leader_asks_to_clear_an_elr_that_is_in_its_way() -> None:
    leader = leader_of(image_of(ONE, TWO, isr=(ONE,), elr=(TWO,)), min_isr=2)
    proposal = proposal_in(leader.on_settings(min_isr=1, lag_ms_max=LAG_MS))
    assert (proposal.image.isr, proposal.image.elr) == ((ONE,), ())


def test_min_isr_is_at_most_the_number_of_replicas() -> None:
    leader = leader_of(image_of(ONE), min_isr=3)
    assert leader.is_min_isr_met
    leader.check_writable()


def test_replicas_that_are_only_being_added_need_not_be_in_sync() -> None:
    leader = leader_of(image_of(ONE, TWO, isr=(ONE,), adding=(TWO,)), min_isr=2)
    assert leader.is_min_isr_met


def test_high_watermark_waits_for_a_caught_up_replica_that_is_about_to_join() -> None:
    leader = leader_of(image_of(ONE, TWO, isr=(ONE,)))
    # It asked for all there was, a moment ago. Its joining is under way.
    proposal_in(fetch(leader, TWO, 0, now_ms=10))
    assert append(leader, 10) == []
    assert fetch(leader, TWO, 10, now_ms=20) == [HighWatermarkMoved(high_watermark=Offset(10))]


def test_who_was_taken_out_of_the_isr_is_not_waited_for() -> None:
    """Its log had failed, and its broker gave it up: everybody who wrote waited for it as long as a lag may last."""
    image = image_of(ONE, TWO, THREE)
    leader = leader_of(image)
    for broker in (TWO, THREE):
        fetch(leader, broker, 0, now_ms=10)
    leader.on_image(replace(image, isr=(ONE, TWO), revision=11))
    append(leader, 10)
    fetch(leader, TWO, 10, now_ms=20)
    assert leader.high_watermark == 10
    # It comes back, and is waited for again.
    fetch(leader, THREE, 10, now_ms=30)
    append(leader, 15)
    fetch(leader, TWO, 15, now_ms=40)
    assert leader.high_watermark == 10


def test_a_draining_replica_is_not_waited_for() -> None:
    brokers = brokers_of(ONE, TWO, draining=(TWO,))
    leader = leader_of(image_of(ONE, TWO, isr=(ONE,)), brokers=brokers)
    assert fetch(leader, TWO, 0, now_ms=10) == []
    assert append(leader, 10) == [HighWatermarkMoved(high_watermark=Offset(10))]


def test_acks_all_is_refused_while_too_few_are_in_sync() -> None:
    leader = leader_of(image_of(ONE, TWO, isr=(ONE,)), min_isr=2)
    with pytest.raises(NotEnoughReplicas, match="1 in sync"):
        leader.check_writable()


def test_acks_all_is_answered_when_the_high_watermark_has_passed() -> None:
    leader = leader_of(image_of(ONE, TWO))
    append(leader, 10)
    assert not leader.is_committed(Offset(10))
    fetch(leader, TWO, 10)
    assert leader.is_committed(Offset(10))
    assert not leader.is_committed(Offset(11))


# -- a new leader


def test_a_new_leader_enters_its_epoch_and_keeps_its_high_watermark() -> None:
    image = image_of(ONE, TWO)
    leader = Leader(
        ONE,
        image,
        log_start=Offset(0),
        log_end=Offset(20),
        durable_end=Offset(20),
        high_watermark=Offset(8),
        min_isr=1,
        lag_ms_max=LAG_MS,
        brokers=brokers_of(ONE, TWO),
        now_ms=0,
    )
    assert leader.begin() == [BeginEpoch(leader_epoch=EPOCH, first_offset=Offset(20))]
    assert leader.high_watermark == 8
    assert fetch(leader, TWO, 20) == [HighWatermarkMoved(high_watermark=Offset(20))]


def test_the_end_is_unknown_until_the_high_watermark_has_reached_the_epoch() -> None:
    leader = leader_of(image_of(ONE, TWO), log_end=20, high_watermark=8)
    assert not leader.is_end_known
    fetch(leader, TWO, 19)
    assert not leader.is_end_known
    fetch(leader, TWO, 20)
    assert leader.is_end_known


def test_a_broker_leads_only_in_epochs_that_its_log_does_not_know() -> None:
    image = image_of(ONE, TWO)
    assert may_lead(ONE, image, last_epoch=LeaderEpoch(4))
    assert not may_lead(ONE, image, last_epoch=EPOCH)
    assert not may_lead(TWO, image, last_epoch=LeaderEpoch(4))


def test_a_single_replica_goes_on_in_its_epoch_after_a_restart() -> None:
    assert may_lead(ONE, image_of(ONE), last_epoch=EPOCH)
    assert not may_lead(ONE, image_of(ONE), last_epoch=LeaderEpoch(EPOCH + 1))


# -- fetches that tell nothing


def test_a_fetch_of_another_leader_epoch_is_refused_and_changes_nothing() -> None:
    leader = leader_of(image_of(ONE, TWO))
    append(leader, 10)
    with pytest.raises(FencedLeaderEpoch):
        fetch(leader, TWO, 10, leader_epoch=LeaderEpoch(4))
    with pytest.raises(UnknownLeaderEpoch):
        fetch(leader, TWO, 10, leader_epoch=LeaderEpoch(6))
    assert leader.high_watermark == 0


def test_a_fetch_from_before_a_crash_is_refused_and_changes_nothing() -> None:
    leader = leader_of(image_of(ONE, TWO))
    append(leader, 10)
    with pytest.raises(NotLeader):
        fetch(leader, TWO, 10, broker_epoch=101)
    assert leader.high_watermark == 0


def test_a_fetch_from_before_a_crash_is_refused_also_where_the_store_has_not_told_yet() -> None:
    leader = leader_of(image_of(ONE, TWO), brokers=brokers_of(ONE))
    append(leader, 10)
    fetch(leader, TWO, 2, broker_epoch=150)
    with pytest.raises(NotLeader):
        fetch(leader, TWO, 10, broker_epoch=102)
    assert leader.high_watermark == 2


def test_a_stranger_is_told_to_ask_again() -> None:
    leader = leader_of(image_of(ONE, TWO))
    with pytest.raises(UnknownLeaderEpoch):
        fetch(leader, FOUR, 0)


# -- who leaves the ISR


def test_a_replica_that_lags_for_too_long_leaves_the_isr() -> None:
    leader = leader_of(image_of(ONE, TWO, THREE))
    fetch(leader, TWO, 0, now_ms=100)
    fetch(leader, THREE, 0, now_ms=100)
    append(leader, 10)
    fetch(leader, THREE, 10, now_ms=200)
    assert leader.on_tick(100 + LAG_MS) == []
    proposal = proposal_in(leader.on_tick(101 + LAG_MS))
    assert proposal.image.isr == (ONE, THREE)
    assert proposal.image.revision == 10


def test_a_burst_makes_nobody_leave() -> None:
    leader = leader_of(image_of(ONE, TWO))
    fetch(leader, TWO, 0, now_ms=100)
    append(leader, 1_000_000)
    assert leader.on_tick(150) == []


def test_a_follower_of_a_busy_leader_is_caught_up_with_what_there_was_at_its_last_fetch() -> None:
    leader = leader_of(image_of(ONE, TWO))
    end = 0
    for now_ms in range(0, 5 * LAG_MS, 100):
        # There is always more by the time it asks.
        append(leader, end + 10)
        fetch(leader, TWO, end, now_ms=now_ms)
        end += 10
        assert leader.on_tick(now_ms) == []


def test_a_replica_that_has_everything_stays_also_if_it_asks_for_nothing() -> None:
    leader = leader_of(image_of(ONE, TWO))
    fetch(leader, TWO, 0, now_ms=0)
    assert leader.on_tick(10 * LAG_MS) == []


def test_a_member_that_lost_committed_records_leaves_at_once_and_is_not_eligible() -> None:
    leader = leader_of(image_of(ONE, TWO), min_isr=2)
    append(leader, 10)
    fetch(leader, TWO, 10)
    # It crashed under flush=os, and nobody had taken it out.
    brokers = brokers_of(ONE, TWO)
    brokers[TWO] = replace(brokers[TWO], epoch=200)
    leader.on_brokers(brokers)
    proposal = proposal_in(fetch(leader, TWO, 3, broker_epoch=200, now_ms=1))
    assert (proposal.image.isr, proposal.image.elr) == ((ONE,), ())


def test_whose_log_has_failed_is_not_in_sync_until_it_says_otherwise() -> None:
    """A fetch from before it failed may come late."""
    failed = replace(image_of(ONE, TWO, THREE, isr=(ONE, TWO)), offline=(TWO, THREE))
    leader = leader_of(replace(failed, offline=()), min_isr=2)
    proposal = proposal_in(leader.on_image(replace(failed, revision=11)))
    assert (proposal.image.isr, proposal.image.elr) == ((ONE,), ())
    leader.on_image(replace(proposal.image, revision=12))
    assert fetch(leader, TWO, 0) == []
    again = leader.on_image(replace(proposal.image, offline=(THREE,), revision=13))
    assert proposal_in(again).image.isr == (ONE, TWO)


def test_who_leaves_an_isr_that_becomes_too_small_stays_eligible() -> None:
    leader = leader_of(image_of(ONE, TWO, THREE), min_isr=2)
    fetch(leader, TWO, 0, now_ms=0)
    append(leader, 10)
    proposal = proposal_in(leader.on_tick(LAG_MS + 1))
    assert (proposal.image.isr, proposal.image.elr) == ((ONE,), (TWO, THREE))


def test_who_leaves_an_isr_that_is_large_enough_is_not_eligible() -> None:
    leader = leader_of(image_of(ONE, TWO), min_isr=1)
    append(leader, 10)
    proposal = proposal_in(leader.on_tick(LAG_MS + 1))
    assert (proposal.image.isr, proposal.image.elr) == ((ONE,), ())


# -- who joins


def test_a_replica_that_has_all_that_is_committed_joins() -> None:
    leader = leader_of(image_of(ONE, TWO, THREE, isr=(ONE, TWO)))
    append(leader, 10)
    fetch(leader, TWO, 8)
    assert fetch(leader, THREE, 7, now_ms=1) == []
    proposal = proposal_in(fetch(leader, THREE, 8, now_ms=2))
    assert proposal.image.isr == (ONE, TWO, THREE)
    assert proposal.joiners == ((THREE, 103),)


def test_a_replica_joins_only_with_all_that_was_there_when_the_leader_began() -> None:
    # The high watermark is behind what the leader before had committed.
    leader = leader_of(image_of(ONE, TWO, THREE, isr=(ONE, TWO)), log_end=20, high_watermark=8)
    assert fetch(leader, THREE, 19, now_ms=1) == []
    assert proposal_in(fetch(leader, THREE, 20, now_ms=2)).image.isr == (ONE, TWO, THREE)


def test_a_replica_joins_only_as_the_process_that_is_registered() -> None:
    leader = leader_of(image_of(ONE, TWO, isr=(ONE,)))
    # It has come back; that it is registered anew we have not heard yet.
    assert fetch(leader, TWO, 0, broker_epoch=200, now_ms=1) == []
    brokers = brokers_of(ONE, TWO)
    brokers[TWO] = replace(brokers[TWO], epoch=200)
    assert proposal_in(leader.on_brokers(brokers)).joiners == ((TWO, 200),)


@pytest.mark.parametrize("brokers", [brokers_of(ONE), brokers_of(ONE, TWO, draining=(TWO,))])
def test_a_dead_or_draining_replica_does_not_join(brokers: dict[BrokerId, BrokerEndpoint]) -> None:
    leader = leader_of(image_of(ONE, TWO, isr=(ONE,)), brokers=brokers)
    assert fetch(leader, TWO, 0, now_ms=1) == []


def test_who_has_left_joins_again_only_when_it_asks_for_something() -> None:
    image = image_of(ONE, TWO)
    leader = leader_of(image, min_isr=2)
    fetch(leader, TWO, 0, now_ms=900)
    append(leader, 10)
    # It is slow, and asked for something shortly before it was out.
    fetch(leader, TWO, 1, now_ms=1800)
    proposal = proposal_in(leader.on_tick(901 + LAG_MS))
    # It has all that is committed.
    effects = leader.on_image(replace(proposal.image, revision=11))
    assert effects == [IsrChanged(isr=(ONE,), is_min_isr_met=False)]
    assert leader.on_tick(902 + LAG_MS) == []
    assert proposal_in(fetch(leader, TWO, 1, now_ms=2000)).image.isr == (ONE, TWO)


def test_who_asked_for_something_long_ago_does_not_join() -> None:
    brokers = brokers_of(ONE, TWO)
    leader = leader_of(image_of(ONE, TWO, isr=(ONE,)), brokers=brokers_of(ONE))
    assert fetch(leader, TWO, 0, now_ms=0) == []
    leader.on_tick(LAG_MS + 1)
    assert leader.on_brokers(brokers) == []


def test_a_change_of_the_isr_does_not_give_others_more_time() -> None:
    image = image_of(ONE, TWO, THREE)
    leader = leader_of(image)
    fetch(leader, TWO, 0, now_ms=100)
    append(leader, 10)
    leader.on_tick(900)
    leader.on_image(replace(image, isr=(ONE, TWO), revision=11))
    assert proposal_in(leader.on_tick(101 + LAG_MS)).image.isr == (ONE,)


def test_who_has_joined_gets_its_time_to_catch_up() -> None:
    leader = leader_of(image_of(ONE, TWO, isr=(ONE,), elr=(TWO,)), min_isr=2)
    append(leader, 10)
    proposal = proposal_in(fetch(leader, TWO, 3, now_ms=5000))
    assert leader.on_image(replace(proposal.image, revision=11))
    assert leader.on_tick(5000 + LAG_MS) == []
    assert proposal_in(leader.on_tick(5001 + LAG_MS)).image.isr == (ONE,)


def test_a_new_replica_is_known_from_the_image_on() -> None:
    image = image_of(ONE, TWO)
    leader = leader_of(image, brokers=brokers_of(ONE, TWO, THREE))
    leader.on_image(
        replace(image, replicas=(ONE, TWO, THREE), adding=(THREE,), isr=(ONE, TWO), revision=11)
    )
    assert proposal_in(fetch(leader, THREE, 0, now_ms=1)).image.isr == (ONE, TWO, THREE)


def test_a_removed_replica_is_forgotten() -> None:
    image = image_of(ONE, TWO, THREE)
    leader = leader_of(image)
    append(leader, 10)
    fetch(leader, TWO, 10)
    effects = leader.on_image(replace(image, replicas=(ONE, TWO), isr=(ONE, TWO), revision=11))
    assert HighWatermarkMoved(high_watermark=Offset(10)) in effects
    with pytest.raises(UnknownLeaderEpoch):
        fetch(leader, THREE, 10)


# -- the write is under way


def joining_leader() -> tuple[Leader, ProposeIsr]:
    """1 and 2 are in sync; 3 has caught up, and its joining is being written."""
    leader = leader_of(image_of(ONE, TWO, THREE, isr=(ONE, TWO)))
    return leader, proposal_in(fetch(leader, THREE, 0, now_ms=1))


def test_a_joiner_counts_before_the_store_has_answered() -> None:
    leader, _ = joining_leader()
    assert leader.in_sync == {ONE, TWO, THREE}
    append(leader, 10)
    # Longer ago than one waits for who is only about to join.
    assert fetch(leader, TWO, 10, now_ms=2 + 2 * LAG_MS) == []
    assert leader.high_watermark == 0


def test_only_one_write_is_under_way() -> None:
    leader, _ = joining_leader()
    append(leader, 10)
    assert leader.on_tick(10 * LAG_MS) == []


def test_a_leaver_counts_until_the_store_has_agreed() -> None:
    leader = leader_of(image_of(ONE, TWO))
    append(leader, 10)
    proposal = proposal_in(leader.on_tick(LAG_MS + 1))
    assert leader.in_sync == {ONE, TWO}
    assert leader.high_watermark == 0
    assert leader.on_image(replace(proposal.image, revision=11)) == [
        IsrChanged(isr=(ONE,), is_min_isr_met=True),
        LowWatermarkMoved(low_watermark=Offset(0)),
        HighWatermarkMoved(high_watermark=Offset(10)),
    ]


def test_a_refused_write_is_not_repeated_before_the_store_was_read() -> None:
    leader, proposal = joining_leader()
    leader.on_isr_refused(proposal)
    assert leader.in_sync == {ONE, TWO, THREE}
    assert fetch(leader, THREE, 0, now_ms=2) == []
    # Nobody had changed it: so the joiner was not registered any more.
    assert proposal_in(leader.on_image(leader.image)).image.isr == (ONE, TWO, THREE)


def test_after_a_refused_write_and_a_read_the_joiner_no_longer_counts() -> None:
    leader, proposal = joining_leader()
    leader.on_brokers(brokers_of(ONE, TWO))
    leader.on_isr_refused(proposal)
    assert leader.on_image(leader.image) == []
    assert leader.in_sync == {ONE, TWO}


def test_after_an_unknown_outcome_a_read_of_the_old_state_settles_nothing() -> None:
    leader, proposal = joining_leader()
    leader.on_brokers(brokers_of(ONE, TWO))
    leader.on_isr_unknown(proposal)
    again = proposal_in(leader.on_image(leader.image))
    # Written as it is: then the lost write cannot come about any more.
    assert again.image == leader.image
    assert leader.in_sync == {ONE, TWO, THREE}
    leader.on_image(replace(again.image, revision=11))
    assert leader.in_sync == {ONE, TWO}


def test_an_unknown_write_may_turn_out_to_have_succeeded() -> None:
    leader, proposal = joining_leader()
    leader.on_isr_unknown(proposal)
    effects = leader.on_image(replace(proposal.image, revision=11))
    assert effects == [IsrChanged(isr=(ONE, TWO, THREE), is_min_isr_met=True)]


def test_somebody_elses_write_settles_ours() -> None:
    leader, proposal = joining_leader()
    # The controller took out a dead broker.
    image = image_of(ONE, TWO, THREE, isr=(ONE,), revision=11)
    effects = leader.on_image(image)
    assert effects[0] == IsrChanged(isr=(ONE,), is_min_isr_met=True)
    again = proposal_in(effects)
    assert (again.image.isr, again.image.revision) == ((ONE, THREE), 11)
    # What is heard of ours after that is old news: the one under way is another.
    leader.on_isr_refused(proposal)
    leader.on_image(image)
    assert leader.in_sync == {ONE, THREE}


def test_an_older_image_is_ignored() -> None:
    leader = leader_of(image_of(ONE, TWO, revision=10))
    assert leader.on_image(image_of(ONE, TWO, isr=(ONE,), revision=9)) == []
    assert leader.image.isr == (ONE, TWO)


# -- the end


def test_a_leader_steps_down_when_another_epoch_began() -> None:
    leader = leader_of(image_of(ONE, TWO))
    append(leader, 10)
    image = image_of(ONE, TWO, leader=TWO, epoch=LeaderEpoch(6), revision=11)
    assert leader.on_image(image) == [SteppedDown(image=image)]
    with pytest.raises(NotLeader):
        fetch(leader, TWO, 10)
    with pytest.raises(NotLeader):
        leader.check_writable()
    assert leader.on_tick(10 * LAG_MS) == []
    assert leader.on_image(replace(image, revision=12)) == []
    assert leader.high_watermark == 0


def test_a_leader_that_is_elected_again_begins_again() -> None:
    leader = leader_of(image_of(ONE, TWO))
    image = image_of(ONE, TWO, leader=ONE, epoch=LeaderEpoch(6), revision=11)
    assert leader.on_image(image) == [SteppedDown(image=image)]


# -- deleted records


def test_the_low_watermark_is_that_of_the_last_replica_that_deleted() -> None:
    leader = leader_of(image_of(ONE, TWO, THREE), log_end=10, high_watermark=10)
    assert leader.low_watermark == -1
    fetch(leader, TWO, 10)
    assert deleting_fetch(leader, THREE, 0) == [LowWatermarkMoved(low_watermark=Offset(0))]
    assert leader.on_log_start(Offset(6)) == []
    assert deleting_fetch(leader, TWO, 6) == []
    assert deleting_fetch(leader, THREE, 5) == [LowWatermarkMoved(low_watermark=Offset(5))]
    assert deleting_fetch(leader, THREE, 6) == [LowWatermarkMoved(low_watermark=Offset(6))]


def deleting_fetch(leader: Leader, broker: BrokerId, log_start: int) -> list[LeaderEffect]:
    return fetch(leader, broker, 10, log_start=log_start, with_low_watermark=True)


def test_nobody_joins_a_new_leader_before_it_has_deleted_what_that_had_deleted() -> None:
    """The leader before had not waited for it, for it was not in sync: it could lead next, and bring all back."""
    image = image_of(ONE, TWO, THREE, isr=(ONE, TWO))
    leader = leader_of(image, log_start=100, high_watermark=150, log_end=150)
    assert fetch(leader, THREE, 150, log_start=0, now_ms=10) == []
    proposal_in(fetch(leader, THREE, 150, log_start=100, now_ms=20))


def test_the_low_watermark_waits_for_the_dead_only_while_they_can_be_elected() -> None:
    image = image_of(ONE, TWO)
    leader = leader_of(image, log_end=10, high_watermark=10)
    leader.on_log_start(Offset(6))
    assert leader.on_brokers(brokers_of(ONE)) == []
    eligible = replace(image, isr=(ONE,), elr=(TWO,), revision=11)
    assert LowWatermarkMoved(low_watermark=Offset(6)) not in leader.on_image(eligible)
    gone = replace(image, isr=(ONE,), elr=(), revision=12)
    assert LowWatermarkMoved(low_watermark=Offset(6)) in leader.on_image(gone)


def test_the_low_watermark_does_not_wait_for_a_replica_that_has_not_begun() -> None:
    """One that is added waits for its turn to be copied, maybe for hours."""
    image = image_of(ONE, TWO, THREE, isr=(ONE, TWO), adding=(THREE,))
    leader = leader_of(image, log_end=10, high_watermark=10)
    fetch(leader, TWO, 10)
    leader.on_log_start(Offset(6))
    assert deleting_fetch(leader, TWO, 6) == [LowWatermarkMoved(low_watermark=Offset(6))]
    # It begins with what was there before: so it does not join yet.
    assert fetch(leader, THREE, 10, log_start=0, now_ms=1) == []
    # From now on it is waited for.
    leader.on_log_start(Offset(8))
    assert deleting_fetch(leader, TWO, 8) == []
    joining = deleting_fetch(leader, THREE, 8)
    assert LowWatermarkMoved(low_watermark=Offset(8)) in joining
    assert proposal_in(joining).image.isr == (ONE, TWO, THREE)


def test_the_low_watermark_waits_for_one_that_does_not_fetch_only_while_it_can_be_elected() -> None:
    """Its broker runs, and its disk has failed."""
    image = image_of(ONE, TWO)
    leader = leader_of(image, log_end=10, high_watermark=10)
    fetch(leader, TWO, 10)
    leader.on_log_start(Offset(6))
    eligible = replace(image, isr=(ONE,), elr=(TWO,), revision=11)
    assert LowWatermarkMoved(low_watermark=Offset(6)) not in leader.on_image(eligible)
    gone = replace(image, isr=(ONE,), elr=(), revision=12)
    assert LowWatermarkMoved(low_watermark=Offset(6)) in leader.on_image(gone)


def test_the_low_watermark_goes_on_when_one_that_was_being_copied_stops_fetching() -> None:
    leader = leader_of(image_of(ONE, TWO, isr=(ONE,)), log_end=10, high_watermark=10)
    fetch(leader, TWO, 5, now_ms=1)
    assert leader.on_log_start(Offset(6)) == []
    assert leader.on_tick(LAG_MS + 1) == []
    assert leader.on_tick(LAG_MS + 2) == [LowWatermarkMoved(low_watermark=Offset(6))]


def test_a_replica_joins_when_it_has_deleted_what_all_others_have() -> None:
    leader = leader_of(image_of(ONE, TWO, isr=(ONE,)), log_end=10, brokers=brokers_of(ONE))
    assert leader.on_log_start(Offset(6)) == [LowWatermarkMoved(low_watermark=Offset(6))]
    leader.on_brokers(brokers_of(ONE, TWO))
    assert fetch(leader, TWO, 10, log_start=0, now_ms=1) == []
    assert proposal_in(fetch(leader, TWO, 10, log_start=6, now_ms=2)).image.isr == (ONE, TWO)


# -- readers


def test_a_consumer_is_sent_to_the_replica_in_its_rack() -> None:
    brokers = brokers_of(ONE, TWO, THREE, racks={ONE: "a", TWO: "b", THREE: "c"})
    leader = leader_of(image_of(ONE, TWO, THREE, isr=(ONE, TWO)), log_end=10, brokers=brokers)
    assert leader.closest_replica(client_rack="b", offset=Offset(3)) is None
    fetch(leader, TWO, 10)
    assert leader.closest_replica(client_rack="b", offset=Offset(3)) == TWO
    # Not in sync, be it as close as it may.
    fetch(leader, THREE, 4)
    assert leader.closest_replica(client_rack="c", offset=Offset(3)) is None
    # Dead, though nobody has taken it out of the ISR yet.
    leader.on_brokers(brokers_of(ONE, THREE, racks={ONE: "a", THREE: "c"}))
    assert leader.closest_replica(client_rack="b", offset=Offset(3)) is None


def test_a_consumer_in_the_leaders_rack_stays() -> None:
    brokers = brokers_of(ONE, TWO, racks={ONE: "a", TWO: "a"})
    leader = leader_of(image_of(ONE, TWO), log_end=10, brokers=brokers)
    fetch(leader, TWO, 10)
    assert leader.closest_replica(client_rack="a", offset=Offset(3)) is None
