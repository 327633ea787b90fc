"""Why a topic asked for by name cannot be told about."""

from respool.model.errors import InvalidTopic, RequestError, UnknownTopicOrPartition
from respool.model.ids import check_topic_name


def why_unknown(name: str) -> RequestError:
    """There is no such topic; or there never can be, and the client should not ask again."""
    try:
        check_topic_name(name)
    except InvalidTopic as error:
        return error
    return UnknownTopicOrPartition(f"there is no topic {name!r}")
