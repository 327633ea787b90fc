import pytest

from respool.model.errors import InvalidTopic
from respool.model.ids import TopicPartition, check_topic_name


@pytest.mark.parametrize("name", ["rides", "a", "A.b_c-9", "__consumer_offsets", "x" * 249, "..."])
def test_names_kafka_allows_are_allowed(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "x" * 250,
        "../../etc/passwd",
        "a/b",
        "a\\b",
        "a b",
        "ä",
        "a\x00",
        "a\n",
        "rides\n",
    ],
)
def test_a_name_that_could_leave_the_data_folder_or_confuse_it_is_refused(name: str) -> None:
    with pytest.raises(InvalidTopic):
        check_topic_name(name)


def test_a_partition_is_written_as_its_folder_is() -> None:
    assert str(TopicPartition("ride-events", 3)) == "ride-events-3"
