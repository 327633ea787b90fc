from coordination.consumer_world import topic_id
from respool.coordination.groups.consumer.topics_view import ConsumerTopic, with_ids, with_names


def test_ids_and_names_are_of_the_topics_there_are() -> None:
    topics = {"rides": ConsumerTopic(topic_id(1), 2)}
    named = {"rides": frozenset({0}), "gone": frozenset({0})}
    assert with_ids(named, topics) == {topic_id(1): frozenset({0})}
    by_id = {topic_id(1): frozenset({0}), topic_id(9): frozenset({0})}
    assert with_names(by_id, topics) == {"rides": frozenset({0})}
