"""Random histories of a cluster: deaths, returns, creations, moves, settings, logs that fail, in any order.

What must never be seen: two replicas on one broker; a leader that misses something committed, where the topic does not
allow it; an epoch that does not grow with an election; a partition whose last complete copy the controller gave away.
"""

from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from cluster.cluster_world import FUZZ, SYNCED, ClusterWorld
from respool.cluster import keys
from respool.cluster.broker_requests import broker_load, drain, remove
from respool.cluster.controller_decisions import decide
from respool.cluster.copy_limit import due_copies
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.partition_requests import ElectionKind, elect_leaders, reassign, reassignments
from respool.cluster.replica_balance import balance
from respool.cluster.topic_requests import delete_topic, grow_topic
from respool.model.cluster import PartitionImage
from respool.model.cluster_settings import ControllerSettings
from respool.model.errors import BrokerIsLive, InvalidReplicationFactor, InvalidRequest
from respool.model.ids import BrokerId, TopicPartition
from support.model_runs import run_machine

BROKERS = [BrokerId(one) for one in range(1, 7)]
TOPICS_MAX = 4
ANY = st.integers(0, 10_000)


class ClusterHistory(RuleBasedStateMachine):
    @initialize(
        is_about_moves=st.booleans(),
        racks=st.sampled_from([[None], ["a", "b"], ["a", "b", "c"], ["a", None]]),
    )
    def start(self, is_about_moves: bool, racks: list[str | None]) -> None:
        self.world = ClusterWorld(
            {one: racks[one % len(racks)] for one in BROKERS},
            settings=ControllerSettings(
                dead_after_ms=60_000, unclean_wait_ms=10_000, copies_per_broker_max=2
            ),
        )
        self.created = 0
        self.seen: dict[TopicPartition, PartitionImage] = {}
        self.late: list[GuardedWrite] = []
        self.is_about_moves = False
        self.create(partitions=2, factor=3, min_isr=2, unclean=False, synced=False)
        # Half of the histories are about one topic whose replicas move, so that more happens to it.
        self.is_about_moves = is_about_moves
        if not is_about_moves:
            self.create(partitions=4, factor=2, min_isr=1, unclean=False, synced=True)

    # Topics

    @precondition(lambda self: not self.is_about_moves)
    @rule(
        partitions=st.integers(1, 5),
        factor=st.integers(1, 4),
        min_isr=st.integers(1, 3),
        unclean=st.booleans(),
        synced=st.booleans(),
    )
    def create(
        self, partitions: int, factor: int, min_isr: int, unclean: bool, synced: bool
    ) -> None:
        overrides = {"min.insync.replicas": str(min_isr)} | (SYNCED if synced else {})
        if unclean:
            overrides["unclean.leader.election.enable"] = "true"
        if len(self.world.view().topics) < TOPICS_MAX and factor <= len(
            self.world.view().candidates()
        ):
            self.created += 1
            name = f"topic-{self.created}"
            self.world.create(name, partitions=partitions, factor=factor, overrides=overrides)

    @precondition(lambda self: not self.is_about_moves)
    @rule(pick=ANY)
    def grow(self, pick: int) -> None:
        view = self.world.view()
        if view.topics:
            topic = view.topics[sorted(view.topics)[pick % len(view.topics)]]
            count = len(topic.partitions)
            try:
                self.world.apply(grow_topic(view, topic.name, partition_count=count + 1))
            except InvalidReplicationFactor:
                return
            of = TopicPartition(topic.name, count)
            self.world.complete[of] = set(self.world.image(of).isr)

    @precondition(lambda self: not self.is_about_moves)
    @rule(pick=ANY)
    def delete(self, pick: int) -> None:
        view = self.world.view()
        if len(view.topics) > 1 and pick % 3 == 0:
            name = sorted(view.topics)[pick % len(view.topics)]
            self.world.apply(delete_topic(view, name))

    @precondition(lambda self: not self.is_about_moves)
    @rule(pick=ANY, min_isr=st.integers(1, 3))
    def set_min_isr(self, pick: int, min_isr: int) -> None:
        view = self.world.view()
        if view.topics:
            topic = view.topics[sorted(view.topics)[pick % len(view.topics)]]
            record = keys.TopicRecord(
                id=topic.id,
                overrides={**topic.overrides, "min.insync.replicas": str(min_isr)},
                partition_count=len(topic.partitions),
            )
            self.world.put(keys.topic_key(topic.name), keys.encode_topic(record))

    # Brokers

    @rule(pick=ANY)
    def die(self, pick: int) -> None:
        live = self.world.live()
        if live:
            self.world.die(live[pick % len(live)])

    @rule(pick=ANY, was_clean=st.booleans())
    def come_back(self, pick: int, was_clean: bool) -> None:
        view = self.world.view()
        gone = [one for one in BROKERS if one not in view.brokers]
        if gone:
            broker = gone[pick % len(gone)]
            if not view.registry[broker].is_removed:
                self.world.come_back(broker, was_clean=was_clean)

    @rule(pick=ANY, was_clean=st.booleans())
    def restart_before_anybody_notices(self, pick: int, was_clean: bool) -> None:
        live = self.world.live()
        if live:
            self.world.die(live[pick % len(live)])
            self.world.come_back(live[pick % len(live)], was_clean=was_clean)

    @precondition(lambda self: not self.is_about_moves)
    @rule(pick=ANY)
    def announce_stop(self, pick: int) -> None:
        live = self.world.live()
        if live:
            self.world.announce_stop(live[pick % len(live)])

    @precondition(lambda self: not self.is_about_moves)
    @rule(pick=ANY)
    def drain_one(self, pick: int) -> None:
        try:
            self.world.apply(drain(self.world.view(), BROKERS[pick % len(BROKERS)]))
        except InvalidReplicationFactor:
            return

    @precondition(lambda self: not self.is_about_moves)
    @rule(pick=ANY)
    def remove_one(self, pick: int) -> None:
        broker = BROKERS[pick % len(BROKERS)]
        try:
            self.world.apply(remove(self.world.view(), broker))
        except BrokerIsLive:
            assert self.world.view().is_live(broker)
        except InvalidRequest:
            assert broker_load(self.world.view(), broker).replicas > 0

    @precondition(lambda self: not self.is_about_moves)
    @rule(pick=ANY)
    def admit_one(self, pick: int) -> None:
        self.world.admit(BROKERS[pick % len(BROKERS)])

    # Partitions

    @rule(pick=ANY, broker=st.sampled_from(BROKERS))
    def only_one_keeps_up(self, pick: int, broker: BrokerId) -> None:
        """It catches up, all others but the leader fall behind; then the leader dies or is cut off."""
        if images := list(self.world.images()):
            of = images[pick % len(images)]
            self.world.catch_up(of, broker)
            for one in BROKERS:
                if one != broker:
                    self.world.shrink_isr(of, one)
            self.world.commit(of)
            leader = self.world.image(of).leader
            if leader is not None and leader != broker and self.world.view().is_live(leader):
                self.world.die(leader)

    @rule(pick=ANY)
    def commit(self, pick: int) -> None:
        for number, of in enumerate(self.world.images()):
            if pick >> (number % 12) & 1:
                self.world.commit(of)

    @rule(pick=ANY, broker=st.sampled_from(BROKERS))
    def shrink_isr(self, pick: int, broker: BrokerId) -> None:
        if images := list(self.world.images()):
            self.world.shrink_isr(images[pick % len(images)], broker)

    @rule(broker=st.sampled_from(BROKERS))
    def catch_up(self, broker: BrokerId) -> None:
        for of in self.world.images():
            self.world.catch_up(of, broker)

    @rule(pick=ANY, broker=st.sampled_from(BROKERS))
    def fail_log(self, pick: int, broker: BrokerId) -> None:
        if images := list(self.world.images()):
            self.world.fail_log(images[pick % len(images)], broker)

    @rule(pick=ANY)
    def fail_log_of_a_leader(self, pick: int) -> None:
        if images := list(self.world.images().items()):
            of, image = images[pick % len(images)]
            if image.leader is not None:
                self.world.fail_log(of, image.leader)

    @rule(broker=st.sampled_from(BROKERS))
    def mend_logs(self, broker: BrokerId) -> None:
        self.world.mend_logs(broker)

    @rule(pick=ANY, goal=st.lists(st.sampled_from(BROKERS), min_size=1, max_size=4, unique=True))
    def move(self, pick: int, goal: list[BrokerId]) -> None:
        if images := list(self.world.images()):
            of = images[pick % len(images)]
            outcome = reassign(self.world.view(), {of: goal})
            self.by_controller(lambda: self.world.apply(outcome.writes))

    @rule(pick=ANY)
    def cancel(self, pick: int) -> None:
        view = self.world.view()
        if moving := list(reassignments(view)):
            outcome = reassign(view, {moving[pick % len(moving)]: None})
            assert not outcome.refused
            self.by_controller(lambda: self.world.apply(outcome.writes))

    @precondition(lambda self: not self.is_about_moves)
    @rule()
    def elect_preferred(self) -> None:
        outcome = elect_leaders(self.world.view(), ElectionKind.PREFERRED)
        self.by_controller(lambda: self.world.apply(outcome.writes))

    @precondition(lambda self: not self.is_about_moves)
    @rule()
    def balance(self) -> None:
        self.by_controller(lambda: self.world.apply(balance(self.world.view())))
        assert balance(self.world.view()) == []

    # The controller

    @rule(later_ms=st.sampled_from([0, 1_000, 15_000, 70_000]))
    def decide(self, later_ms: int) -> None:
        self.world.view()
        self.world.now_ms += later_ms
        self.by_controller(self.world.decide)
        view = self.world.view()
        for image in self.world.images().values():
            assert all(view.is_live(one) for one in image.isr)
            complete = {*image.isr, *image.elr}.difference(image.offline)
            if any(view.is_live(one) for one in complete):
                assert image.leader is not None
            if image.leader is not None:
                assert view.is_live(image.leader)
                assert not {*image.isr} & {*image.offline}
                if not view.can_lead(image.leader):
                    assert not any(view.can_lead(one) for one in image.isr)
        assert not view.strays

    @rule()
    def begin_to_decide(self) -> None:
        self.late = decide(self.world.view())

    @rule()
    def write_what_was_decided_before(self) -> None:
        """Much may have happened since: the store takes only what still rests on what it was decided on."""
        late, self.late = self.late, []
        self.by_controller(lambda: self.world.apply_what_holds(late), is_late=True)

    @rule()
    def everything_settles(self) -> None:
        """With time and nothing more going wrong, moves end and everybody is in sync."""
        for one, endpoint in self.world.view().brokers.items():
            if endpoint.is_draining:
                self.world.die(one)
        for _ in range(200):
            self.by_controller(self.world.decide)
            turns = due_copies(self.world.view())
            for one, partitions in turns.items():
                assert len(partitions) <= self.world.settings.copies_per_broker_max
                for of in partitions:
                    self.world.catch_up(of, one)
            has_moved = self.world.catch_up_everywhere(is_copying=False)
            if not has_moved and not turns:
                break
            self.world.now_ms += 70_000
        else:
            raise AssertionError("it does not come to an end")

    def by_controller(self, action: Callable[[], None], *, is_late: bool = False) -> None:
        """What the controller does may not give away the last copy of what was committed."""
        before = self.world.images()
        action()
        for of, image in self.world.images().items():
            rules = self.world.view().topics[of.topic].rules
            complete, leader, old = self.world.complete[of], image.leader, before[of]
            if leader is not None and leader not in complete:
                is_alone = {*old.replicas} - {*old.adding} == {leader}
                assert rules.is_unclean_allowed or is_alone, (of, old, image)
                self.world.complete[of] = {leader}
            elif complete & {*old.replicas}:
                assert complete & {*image.replicas}, (of, old, image)
            if not is_late and not {*old.replicas} - {*old.adding} <= {*image.replicas}:
                # A replica has left: the others are in sync, and enough to go on. The next move may have begun.
                behind = {*image.replicas} - {*image.isr} - {*image.adding}
                assert all(self.world.view().is_dead_for_good(one) for one in behind), (
                    of,
                    old,
                    image,
                )
                assert len(image.isr) >= image.min_isr(rules.min_isr)
            # Who leaves deletes its copy, and has nothing when it is added again.
            self.world.complete[of] &= {*image.replicas}

    @invariant()
    def what_must_hold(self) -> None:
        now = self.world.images()
        for of, image in now.items():
            assert len(set(image.replicas)) == len(image.replicas) > 0
            assert {*image.isr, *image.elr} <= set(image.replicas)
            assert {*image.adding, *image.removing, *image.offline} <= set(image.replicas)
            assert image.leader is None or image.leader in image.isr
            assert {*image.isr, *image.elr} <= self.world.complete[of], (of, image)
            old = self.seen.get(of)
            if old is not None:
                assert image.leader_epoch >= old.leader_epoch
                if image.leader != old.leader:
                    assert image.leader_epoch > old.leader_epoch
        self.seen = now


def test_a_broker_that_left_has_no_copy_when_it_is_added_again() -> None:
    """A history that failed, because broker 1 still counted as complete: to go back to broker 2 is right."""
    history = ClusterHistory()
    history.start(is_about_moves=False, racks=[None])
    history.move(goal=[BrokerId(2)], pick=1)
    history.everything_settles()
    history.move(goal=[BrokerId(1)], pick=1)
    history.restart_before_anybody_notices(pick=1, was_clean=False)
    history.cancel(pick=0)
    history.what_must_hold()


def test_random_histories_keep_what_was_committed() -> None:
    run_machine(ClusterHistory, examples=150, steps=50)


@pytest.mark.long
@pytest.mark.skipif(not FUZZ, reason="RESPOOL_FUZZ=long runs it")
@pytest.mark.timeout(7200)
def test_random_histories_keep_what_was_committed_at_length() -> None:
    run_machine(ClusterHistory, examples=4_000, steps=80)
