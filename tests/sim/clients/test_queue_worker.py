"""What the scenario of share groups needs to find anything is there: see `tests/sim/test_queue_run.py`."""

from respool.model.ids import TopicPartition
from respool.sim.checks.history import History
from respool.sim.checks.queue_history import QueueHistory
from respool.sim.checks.queue_ledger import QueueGroup
from respool.sim.checks.queue_watch import QueueWatch
from respool.sim.clients.queue_worker import QueueWorker

GROUP = QueueGroup(name="workers", configs={}, delivery_limit=3, lock_ms=1_000)


def test_violations_of_a_group_reach_the_runs_history() -> None:
    main = History()
    history = QueueHistory(main, groups=[GROUP], early_ms=lambda: 0.0)
    history.ledgers["workers"].on_start(TopicPartition("jobs", 0), 5)
    history.ledgers["workers"].on_start(TopicPartition("jobs", 0), 4)
    assert [one.rule for one in main.violations] == ["Q7"]


def test_nothing_is_kept_by_brokers_that_are_not_there() -> None:
    watch = QueueWatch(machines=[], history=History(), batch_records_max=4)
    assert watch.kept("workers", TopicPartition("jobs", 0), QueueWorker.__name__) is None
