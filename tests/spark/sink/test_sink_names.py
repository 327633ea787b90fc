"""Names in the broker: whose they are can be told from them."""

from hypothesis import given
from hypothesis import strategies as st

from respool.spark.sink.names import (
    ID_SLOTS,
    decider_of,
    job_end_of,
    job_transactional_id,
    sink_of,
    tasks_of,
    tasks_of_job,
    transactional_id,
)
from respool.spark.sink.protocol import TaskId

QUERY = "c23a98ed-5b8e-469a-a279-07b6bed62ea9"
RUN = "519be3af-35f9-4793-acef-0f0c07cbd995"
names = st.text("a-task.0", min_size=1, max_size=20)
places = st.builds(
    TaskId, run=st.uuids().map(str), batch=st.integers(0, 2**40), task=st.integers(0, 10_000)
)


def test_a_task_is_named_by_run_lane_number_and_attempt() -> None:
    place = TaskId(run=RUN, batch=6, task=3)
    assert transactional_id(sink_of(QUERY), place, 1) == f"spark-sink-{QUERY}-task-519be3af-2-3-1"


def test_names_come_again_after_some_batches_and_never_for_another_attempt() -> None:
    def name(batch: int, attempt: int) -> str:
        return transactional_id("s", TaskId(run=RUN, batch=batch, task=0), attempt)

    assert (
        len({name(batch, attempt) for batch in range(100) for attempt in range(4)}) == 4 * ID_SLOTS
    )
    assert name(0, 0) == name(ID_SLOTS, 0) != name(1, 0)


@given(ours=names, theirs=names, place=places, attempt=st.integers(0, 9))
def test_a_sinks_tasks_are_its_own_whatever_others_are_named(
    ours: str, theirs: str, place: TaskId, attempt: int
) -> None:
    found = tasks_of(sink_of(ours)).fullmatch(transactional_id(sink_of(theirs), place, attempt))
    assert bool(found) == (ours == theirs)
    assert not tasks_of(sink_of(ours)).fullmatch(decider_of(sink_of(theirs)))


def test_a_jobs_tasks_are_its_own() -> None:
    assert tasks_of_job(RUN).fullmatch(job_transactional_id(RUN, 30))
    assert not tasks_of_job(RUN).fullmatch(job_transactional_id(QUERY, 30))
    assert not tasks_of_job(RUN).fullmatch(job_end_of(RUN))
