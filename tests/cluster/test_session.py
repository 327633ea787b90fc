"""A broker's session: it acts only while its lease cannot have run out, and registers anew in safe steps."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.cluster_world import ONE
from respool.cluster import keys
from respool.cluster.keys import BrokerRegistration
from respool.cluster.session import Phase, Session, SessionSettings
from respool.cluster.session_effects import (
    EndLastRun,
    GrantLease,
    NoteRun,
    Put,
    ReadOwnKeys,
    RefuseToJoin,
    Resign,
    RevokeLease,
    StopActing,
)
from respool.model.cluster import BrokerEndpoint, RegistryEntry
from respool.ports.metadata_store import Guard

ME = BrokerEndpoint(id=ONE, host="h", port=1, rack="a")
RUN, OTHER_RUN = UUID(int=1), UUID(int=2)
SETTINGS = SessionSettings(lease_ttl_ms=10_000, clock_drift=0.1, pause_ms=500)
BROKER_KEY, REGISTRY_KEY = keys.broker_key(ONE), keys.registry_key(ONE)


def new_session(clean_run: UUID | None = None) -> Session:
    return Session(ME, settings=SETTINGS, clean_run=clean_run)


def active(session: Session, *, at_ms: int = 1_000, revision: int = 50) -> Session:
    session.begin(RUN)
    session.on_lease_granted(7, ttl_ms=10_000, sent_at_ms=at_ms)
    session.on_own_keys(None, None)
    session.on_stepped_back()
    session.on_registry_written(revision - 1)
    session.on_registration_written(revision)
    assert session.phase is Phase.ACTIVE
    return session


def test_a_broker_registers_step_by_step() -> None:
    session = new_session()
    assert session.begin(RUN) == [NoteRun(run=RUN), GrantLease(ttl_ms=10_000)]
    assert session.on_lease_granted(7, ttl_ms=10_000, sent_at_ms=0) == [ReadOwnKeys()]
    entry = RegistryEntry(rack="a", is_drained=True, clean_epoch=31, revision=40)
    assert session.on_own_keys(None, entry) == [Resign(was_clean=False)]
    (put,) = session.on_stepped_back()
    assert isinstance(put, Put)
    # It stays when the lease runs out; what an operator asked for stays as well.
    assert (put.key, put.lease) == (REGISTRY_KEY, None)
    assert put.guards == (Guard(key=REGISTRY_KEY, revision=40),)
    assert keys.decode_registry(put.value) == RegistryEntry(
        rack="a", host=ME.host, port=ME.port, is_drained=True, run=RUN
    )
    (put,) = session.on_registry_written(41)
    assert isinstance(put, Put)
    assert (put.key, put.lease) == (BROKER_KEY, 7)
    assert put.guards == (
        Guard(key=BROKER_KEY, revision=0),
        Guard(key=REGISTRY_KEY, revision=41),
    )
    assert not session.may_act(1)
    assert session.on_registration_written(42) == []
    assert (session.phase, session.epoch) == (Phase.ACTIVE, 42)
    assert session.may_act(1)


@pytest.mark.parametrize(
    ("in_folder", "in_store", "was_clean"),
    [
        (OTHER_RUN, OTHER_RUN, True),
        (OTHER_RUN, UUID(int=3), False),
        (None, OTHER_RUN, False),
        (OTHER_RUN, None, False),
        (None, None, False),
    ],
)
def test_a_stop_was_clean_if_folder_and_store_name_the_same_run(
    in_folder: UUID | None, in_store: UUID | None, was_clean: bool
) -> None:
    session = new_session(in_folder)
    session.begin(RUN)
    session.on_lease_granted(7, ttl_ms=10_000, sent_at_ms=0)
    entry = RegistryEntry(run=in_store, revision=1)
    assert session.on_own_keys(None, entry) == [Resign(was_clean=was_clean)]


def about_to_register(session: Session, entry: RegistryEntry) -> RegistryEntry:
    """Let it go as far as that nothing but its registration is missing; return what the registry has by then."""
    session.begin(RUN)
    session.on_lease_granted(7, ttl_ms=10_000, sent_at_ms=0)
    assert session.on_own_keys(None, entry) == [Resign(was_clean=True)]
    (put,) = session.on_stepped_back()
    assert isinstance(put, Put)
    session.on_registry_written(41)
    return keys.decode_registry(put.value, revision=41)


def test_a_clean_stop_stays_so_though_the_registration_is_refused() -> None:
    """1. A broker that was stopped cleanly starts.   2. It is noted that it runs.   3. Its registration is refused, or
    not answered.   4. It tries again, and still has all that it had."""
    session = new_session(OTHER_RUN)
    entry = about_to_register(session, RegistryEntry(run=OTHER_RUN, revision=40))
    session.on_refused()
    assert session.on_own_keys(None, entry) == [Resign(was_clean=True)]


def test_a_clean_stop_stays_so_though_the_lease_runs_out_before_the_registration() -> None:
    session = new_session(OTHER_RUN)
    entry = about_to_register(session, RegistryEntry(run=OTHER_RUN, revision=40))
    session.on_lost()
    session.begin(UUID(int=3))
    session.on_lease_granted(8, ttl_ms=10_000, sent_at_ms=0)
    assert session.on_own_keys(None, entry) == [Resign(was_clean=True)]


@pytest.mark.parametrize("took_its_place", [False, True])
def test_who_lost_its_lease_has_all_it_had_unless_another_had_its_place_since(
    took_its_place: bool,
) -> None:
    """1. A broker stands still.   2. Its lease runs out, and it is started elsewhere, with an empty disk.   3. That one
    is taken into ISRs, and is lost.   4. The first goes on: what is in sync under its id was not here."""
    session = active(new_session())
    session.on_lost()
    session.begin(UUID(int=3))
    session.on_lease_granted(8, ttl_ms=10_000, sent_at_ms=0)
    entry = RegistryEntry(run=OTHER_RUN if took_its_place else RUN, revision=60)
    assert session.on_own_keys(None, entry) == [Resign(was_clean=not took_its_place)]


def test_a_stop_while_it_registers_anew_is_clean() -> None:
    """The clean-stop file names what the registry has, also if the process has lost its lease once."""
    session = active(new_session())
    session.on_lost()
    session.begin(OTHER_RUN)
    assert session.run == RUN


def test_what_the_store_has_of_the_run_before_is_not_registered_again() -> None:
    of_before = replace(ME, epoch=31, is_draining=True)
    session = Session(of_before, settings=SETTINGS, clean_run=None)
    session.begin(RUN)
    session.on_lease_granted(7, ttl_ms=10_000, sent_at_ms=0)
    session.on_own_keys(None, None)
    session.on_stepped_back()
    (put,) = session.on_registry_written(41)
    assert isinstance(put, Put)
    session.on_registration_written(42)
    seen = keys.decode_broker(ONE, put.value, revision=42).endpoint
    assert seen == replace(ME, epoch=42)
    assert session.epoch == seen.epoch


@pytest.mark.parametrize("clean_run", [OTHER_RUN, None])
def test_a_stop_before_it_was_about_to_register_leaves_a_clean_stop_as_it_was(
    clean_run: UUID | None,
) -> None:
    """A broker is started while the store is away, and stopped again. The registry still names the run before."""
    session = new_session(clean_run)
    session.begin(RUN)
    assert session.run == clean_run
    session.on_lease_granted(7, ttl_ms=10_000, sent_at_ms=0)
    session.on_own_keys(None, RegistryEntry(run=OTHER_RUN, revision=40))
    assert session.run == clean_run
    session.on_stepped_back()
    assert session.run == RUN


def test_a_broker_waits_until_the_run_before_is_gone() -> None:
    session = new_session()
    session.begin(RUN)
    session.on_lease_granted(7, ttl_ms=10_000, sent_at_ms=0)
    other = BrokerRegistration(endpoint=ME, incarnation=OTHER_RUN)
    assert session.on_own_keys(other, None, revision=9) == [ReadOwnKeys(after_ms=SETTINGS.wait_ms)]
    assert session.phase is Phase.READING
    assert session.on_own_keys(None, None) == [Resign(was_clean=False)]


def test_a_registration_whose_answer_was_lost_counts() -> None:
    session = new_session()
    session.begin(RUN)
    session.on_lease_granted(7, ttl_ms=10_000, sent_at_ms=0)
    session.on_own_keys(None, None)
    session.on_stepped_back()
    session.on_registry_written(49)
    assert session.on_refused() == [ReadOwnKeys(after_ms=SETTINGS.wait_ms)]
    mine = keys.decode_broker(
        ONE, keys.encode_broker(BrokerRegistration(endpoint=ME, incarnation=RUN)), revision=50
    )
    assert session.on_own_keys(mine, None, revision=50) == []
    assert (session.phase, session.epoch) == (Phase.ACTIVE, 50)


def test_a_removed_broker_gives_up() -> None:
    session = new_session()
    session.begin(RUN)
    session.on_lease_granted(7, ttl_ms=10_000, sent_at_ms=0)
    (effect,) = session.on_own_keys(None, RegistryEntry(is_removed=True, revision=1))
    assert isinstance(effect, RefuseToJoin)
    assert "broker 1 has been removed" in effect.why
    assert "respool cluster add 1" in effect.why


def test_a_broker_fences_itself_before_its_lease_can_have_run_out() -> None:
    session = active(new_session(), at_ms=1_000)
    # 10,000 less a tenth for the clocks and 500 for a pause.
    assert session.fenced_at_ms == 9_500
    assert session.may_act(9_499)
    assert not session.may_act(9_500)
    session.on_renewed(sent_at_ms=4_000)
    assert session.may_act(12_499)
    assert not session.may_act(12_500)


def test_an_answer_that_comes_late_does_not_shorten_the_lease() -> None:
    session = active(new_session(), at_ms=1_000)
    session.on_renewed(sent_at_ms=5_000)
    session.on_renewed(sent_at_ms=4_000)
    assert session.fenced_at_ms == 13_500
    assert session.renew_at_ms == 7_500


def test_a_lost_session_is_begun_anew_with_a_new_epoch_and_keeps_its_data() -> None:
    session = active(new_session(), revision=50)
    session.on_controller(60)
    assert session.on_lost() == [StopActing()]
    assert not session.may_act(1_000)
    assert not session.may_control(1_000)
    assert session.on_lost() == []
    session.begin(OTHER_RUN)
    session.on_lease_granted(8, ttl_ms=10_000, sent_at_ms=20_000)
    # The process has not crashed: it has what it had.
    assert session.on_own_keys(None, RegistryEntry(rack="a", run=RUN, revision=49)) == [
        Resign(was_clean=True)
    ]
    session.on_stepped_back()
    session.on_registry_written(89)
    session.on_registration_written(90)
    assert session.epoch == 90


def test_only_who_holds_the_controller_s_key_controls_and_only_while_it_may_act() -> None:
    session = active(new_session(), at_ms=1_000)
    assert not session.may_control(2_000)
    session.on_controller(60)
    assert session.controller_revision == 60
    assert session.may_control(2_000)
    assert not session.may_control(9_500)
    session.on_controller(None)
    assert not session.may_control(2_000)


def test_a_clean_stop_is_announced_then_written_down_then_the_lease_ends() -> None:
    session = active(new_session(), revision=50)
    (put,) = session.announce_stop()
    assert isinstance(put, Put)
    assert (put.key, put.lease) == (BROKER_KEY, 7)
    assert put.guards == (Guard(key=BROKER_KEY, revision=50),)
    announced = keys.decode_broker(ONE, put.value, revision=55).endpoint
    assert (announced.is_draining, announced.epoch) == (True, 50)
    assert session.on_registration_written(55) == []
    assert session.may_act(2_000)
    # What it still says of itself is its own.
    assert session.registration == Guard(key=BROKER_KEY, revision=55)
    (put,) = session.on_closed(RegistryEntry(rack="a", is_drained=True, revision=52))
    assert isinstance(put, Put)
    assert put.guards == (Guard(key=REGISTRY_KEY, revision=52),)
    assert keys.decode_registry(put.value) == RegistryEntry(
        rack="a", is_drained=True, clean_epoch=50
    )
    # Somebody else wrote there first: read again, and write again.
    assert session.on_refused() == [ReadOwnKeys(after_ms=SETTINGS.wait_ms)]
    (put,) = session.on_own_keys(None, RegistryEntry(rack="a", revision=53))
    assert isinstance(put, Put)
    assert put.guards == (Guard(key=REGISTRY_KEY, revision=53),)
    assert session.on_registry_written(56) == [RevokeLease(lease=7)]
    # Had the answer been lost, this is how it would have been found out.
    written = RegistryEntry(rack="a", clean_epoch=50, revision=56)
    assert session.on_own_keys(None, written) == [RevokeLease(lease=7)]


def test_a_stop_is_clean_also_when_the_lease_runs_out_meanwhile() -> None:
    session = active(new_session(), revision=50)
    session.announce_stop()
    assert session.on_lost() == [StopActing()]
    assert not session.may_act(2_000)
    (put,) = session.on_closed(RegistryEntry(rack="a", revision=52))
    assert isinstance(put, Put)
    assert keys.decode_registry(put.value).clean_epoch == 50
    assert session.on_registry_written(56) == []


def test_a_stop_is_not_written_down_where_another_run_has_begun() -> None:
    session = active(new_session(), revision=50)
    session.announce_stop()
    session.on_closed(RegistryEntry(rack="a", revision=52))
    session.on_lost()
    other = BrokerRegistration(endpoint=ME, incarnation=OTHER_RUN)
    assert session.on_own_keys(other, RegistryEntry(rack="a", revision=60), revision=61) == []


def test_steps_out_of_order_are_a_broken_invariant() -> None:
    with pytest.raises(AssertionError):
        new_session().on_stepped_back()
    with pytest.raises(AssertionError):
        new_session().announce_stop()
    with pytest.raises(AssertionError):
        active(new_session()).begin(OTHER_RUN)
    with pytest.raises(AssertionError):
        new_session().on_controller(5)


@given(
    speed=st.floats(0.91, 1.09),
    renewals=st.lists(
        st.tuples(st.integers(1, 8_000), st.integers(0, 3_000), st.integers(0, 3_000)), max_size=12
    ),
    asked_after=st.lists(st.integers(0, 12_000), min_size=1, max_size=20),
)
def test_who_may_act_has_a_lease_that_lives(
    speed: float, renewals: list[tuple[int, int, int]], asked_after: list[int]
) -> None:
    """The store's clock is the true one; the broker's has another speed, within what is allowed for.

    Each renewal is sent a while after the one before, takes a while to the store and a while back, or never comes
    back: what was answered is known to the broker only later.
    """
    true_ms = 0.0
    session = active(new_session(), at_ms=0)
    expires_ms = 10_000.0
    for pause_ms, there_ms, back_ms in renewals:
        true_ms += pause_ms
        sent_at_ms = true_ms
        arrives_ms = true_ms + there_ms
        if arrives_ms >= expires_ms:
            break
        expires_ms = arrives_ms + 10_000
        true_ms = arrives_ms + back_ms
        session.on_renewed(sent_at_ms=int(sent_at_ms * speed))
    for after_ms in asked_after:
        asked_ms = true_ms + after_ms
        if session.may_act(int(asked_ms * speed)):
            assert asked_ms < expires_ms


def test_a_stop_without_the_store_is_clean_all_the_same() -> None:
    """1. A broker registers.   2. The store is away.   3. The broker closes its logs and stops.   4. It starts."""
    run_before = active(new_session()).run
    session = new_session(run_before)
    session.begin(OTHER_RUN)
    session.on_lease_granted(8, ttl_ms=10_000, sent_at_ms=0)
    # Nobody could write there that it stopped.
    entry = RegistryEntry(rack="a", run=RUN, clean_epoch=None, revision=49)
    assert session.on_own_keys(None, entry) == [Resign(was_clean=True)]


def test_the_run_before_in_the_same_folder_is_dead_so_its_lease_is_ended() -> None:
    """1. A broker is killed.   2. It starts again at once. It has the folder's lock: nobody need wait for the lease."""
    session = Session(ME, settings=SETTINGS, clean_run=None, last_run=OTHER_RUN)
    session.begin(RUN)
    session.on_lease_granted(7, ttl_ms=10_000, sent_at_ms=0)
    before = BrokerRegistration(endpoint=ME, incarnation=OTHER_RUN, lease=6)
    assert session.on_own_keys(before, None, revision=9) == [EndLastRun(lease=6)]
    assert session.on_own_keys(None, None) == [Resign(was_clean=False)]


def test_a_run_in_another_folder_may_live_so_its_lease_is_left_alone() -> None:
    session = Session(ME, settings=SETTINGS, clean_run=None, last_run=UUID(int=3))
    session.begin(RUN)
    session.on_lease_granted(7, ttl_ms=10_000, sent_at_ms=0)
    other = BrokerRegistration(endpoint=ME, incarnation=OTHER_RUN, lease=6)
    assert session.on_own_keys(other, None, revision=9) == [ReadOwnKeys(after_ms=SETTINGS.wait_ms)]


def waits(session: Session, entry: RegistryEntry) -> list[object]:
    """What is told to one that has waited for another as long as five leases last."""
    session.begin(RUN)
    session.on_lease_granted(7, ttl_ms=10_000, sent_at_ms=0)
    other = BrokerRegistration(endpoint=replace(ME, host="there"), incarnation=OTHER_RUN, lease=6)
    for _ in range(5 * SETTINGS.lease_ttl_ms // SETTINGS.wait_ms):
        assert session.on_own_keys(other, entry, revision=9) == [
            ReadOwnKeys(after_ms=SETTINGS.wait_ms)
        ]
    return list(session.on_own_keys(other, entry, revision=9))


def test_one_with_the_number_of_another_that_lives_does_not_wait_to_take_its_place() -> None:
    """It would have, with an empty folder, as soon as that one stopped for a moment."""
    session = Session(ME, settings=SETTINGS, clean_run=None, folder=UUID(int=5))
    (end,) = waits(session, RegistryEntry(folder=UUID(int=6)))
    assert isinstance(end, RefuseToJoin)
    assert "another broker 1 runs at there:1" in end.why
    assert "--broker-id" in end.why


@pytest.mark.parametrize("folder", [UUID(int=5), None], ids=["the same", "unknown"])
def test_one_that_may_be_a_run_of_this_folder_is_waited_for_until_it_is_gone(
    folder: UUID | None,
) -> None:
    session = Session(ME, settings=SETTINGS, clean_run=None, folder=UUID(int=5))
    (again,) = waits(session, RegistryEntry(folder=folder))
    assert again == ReadOwnKeys(after_ms=SETTINGS.wait_ms)


def test_for_another_run_it_waits_anew() -> None:
    """It restarts again and again: each of its runs might be the last."""
    session = Session(ME, settings=SETTINGS, clean_run=None, folder=UUID(int=5))
    session.begin(RUN)
    session.on_lease_granted(7, ttl_ms=10_000, sent_at_ms=0)
    entry = RegistryEntry(folder=UUID(int=6))
    for number in range(1_000):
        other = BrokerRegistration(endpoint=ME, incarnation=UUID(int=100 + number), lease=6)
        assert session.on_own_keys(other, entry, revision=9) == [
            ReadOwnKeys(after_ms=SETTINGS.wait_ms)
        ]


@pytest.mark.parametrize(
    ("last", "left"),
    [(RUN, None), (OTHER_RUN, OTHER_RUN), (None, None)],
    ids=["same", "other", "unknown"],
)
def test_who_has_another_data_folder_than_its_last_run_says_which_it_has_left(
    last: UUID | None, left: UUID | None
) -> None:
    session = Session(ME, settings=SETTINGS, clean_run=None, folder=RUN)
    session.begin(RUN)
    session.on_lease_granted(7, ttl_ms=10_000, sent_at_ms=0)
    entry = RegistryEntry(run=UUID(int=9), folder=last, revision=40)
    assert session.on_own_keys(None, entry) == [
        Resign(was_clean=False, left_folder=left, folder=RUN)
    ]
    (put,) = session.on_stepped_back()
    assert isinstance(put, Put)
    assert keys.decode_registry(put.value).folder == RUN
