from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId, LeaderEpoch

ONE, TWO, THREE, FOUR = (BrokerId(number) for number in range(1, 5))


def image_of(
    *,
    isr: tuple[BrokerId, ...],
    elr: tuple[BrokerId, ...] = (),
    replicas: tuple[BrokerId, ...] = (ONE, TWO, THREE),
    adding: tuple[BrokerId, ...] = (),
) -> PartitionImage:
    return PartitionImage(
        replicas=replicas,
        isr=isr,
        elr=elr,
        adding=adding,
        leader=ONE,
        leader_epoch=LeaderEpoch(0),
    )


def test_min_isr_is_at_least_one_and_at_most_the_replicas_that_are_there() -> None:
    image = image_of(isr=(ONE,), replicas=(ONE, TWO, THREE, FOUR), adding=(FOUR,))
    assert [image.min_isr(asked) for asked in (0, 1, 2, 3, 4)] == [1, 1, 2, 3, 3]


def test_who_leaves_an_isr_that_is_large_enough_is_not_eligible() -> None:
    assert image_of(isr=(ONE, TWO, THREE)).with_isr((ONE, TWO), min_isr=2).elr == ()


def test_who_leaves_an_isr_that_becomes_too_small_is_eligible() -> None:
    assert image_of(isr=(ONE, TWO, THREE)).with_isr((ONE,), min_isr=2).elr == (TWO, THREE)


def test_who_is_eligible_stays_so_until_the_isr_is_large_enough() -> None:
    image = image_of(isr=(ONE,), elr=(TWO,))
    assert image.with_isr((), min_isr=2).elr == (ONE, TWO)
    assert image.with_isr((ONE, THREE), min_isr=3).elr == (TWO,)
    assert image.with_isr((ONE, THREE), min_isr=2).elr == ()


def test_who_is_elected_from_the_eligible_leaves_the_others_so() -> None:
    assert image_of(isr=(), elr=(ONE, TWO)).with_isr((TWO,), min_isr=2).elr == (ONE,)


def test_who_lost_records_is_not_eligible() -> None:
    image = image_of(isr=(ONE, TWO), elr=(THREE,))
    assert image.with_isr((ONE,), min_isr=2, lost=(TWO, THREE)).elr == ()


def test_an_isr_says_nothing_about_the_leader_and_the_revision() -> None:
    image = image_of(isr=(ONE, TWO))
    changed = image.with_isr((ONE,), min_isr=1)
    assert (changed.leader, changed.leader_epoch, changed.revision) == (
        image.leader,
        image.leader_epoch,
        image.revision,
    )
