"""What kind of run a seed makes."""

from collections import Counter

from respool.sim.sim_plan import draw_sim_plan


def test_a_seed_always_makes_the_same_plan() -> None:
    assert draw_sim_plan(7) == draw_sim_plan(7)
    assert draw_sim_plan(7, broker_count=3) == draw_sim_plan(7, broker_count=3)


def test_so_many_brokers_run_as_were_asked_for() -> None:
    assert not draw_sim_plan(7, broker_count=1).is_cluster
    for seed in range(50):
        plan = draw_sim_plan(seed, broker_count=4)
        assert plan.broker_count == len(plan.racks) == len(plan.clock_rates) == 4


def test_no_topic_asks_for_more_than_there_is() -> None:
    for seed in range(200):
        plan = draw_sim_plan(seed, broker_count=3)
        assert 1 <= plan.min_insync_replicas <= plan.replication_factor <= 3


def test_seeds_differ_in_what_they_promise() -> None:
    drawn = Counter(draw_sim_plan(seed, broker_count=3).flush for seed in range(100))
    assert set(drawn) == {"always", "interval", "os"}


def test_brokers_of_some_clusters_come_back_without_their_disks() -> None:
    drawn = [draw_sim_plan(seed, broker_count=3).changes_disks for seed in range(100)]
    assert 10 < sum(drawn) < 50
    assert not any(draw_sim_plan(seed, broker_count=1).changes_disks for seed in range(100))
