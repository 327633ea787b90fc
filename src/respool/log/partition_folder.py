"""A partition's folder seen from outside: its name, whose it is, and its name once it is out of use.

`<topic>-<partition>` holds a log; `partition.metadata` in it tells of which topic, since another topic may have had the
name before. A folder out of use is renamed `<topic>-<partition>.<32 hex digits>-delete`, or `-stray` when nobody asked
for its deletion: all as in Kafka.
"""

import re
from base64 import b64decode, urlsafe_b64encode
from uuid import UUID

from respool.log.file_names import FILE_NAME_BYTES_MAX
from respool.model.errors import InvalidTopic
from respool.model.ids import TopicId, TopicPartition, check_topic_name

METADATA_NAME = "partition.metadata"
STRAY = "-stray"
_PARTITION_MAX = 2**31 - 1
_ASIDE = re.compile(r"(.+)\.[0-9a-f]{32}-[a-z]+")
_FOLDER = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})")


def folder_name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def what_to_do_about_loss(folder: str) -> str:
    """For the end of an error that keeps the partition offline: accepted_loss.py has the second half."""
    return (
        f"stop the broker and bring {folder} back from a backup, or give up what is missing with: "
        f"respool log accept-loss DATA_FOLDER {folder}"
    )


def parse_folder_name(name: str) -> TopicPartition | None:
    """The partition, or None for any other name. A topic's name may have dashes and digits: the last dash splits."""
    match = _FOLDER.fullmatch(name)
    if match is None or int(match[2]) > _PARTITION_MAX:
        return None
    try:
        check_topic_name(match[1])
    except InvalidTopic:
        return None
    return TopicPartition(match[1], int(match[2]))


def name_aside(name: str, *, tag: UUID, suffix: str) -> str:
    """The folder's name out of use. What is too long for a file's name is cut from the topic's."""
    ending = f".{tag.hex}{suffix}"
    return name[: FILE_NAME_BYTES_MAX - len(ending)] + ending


def is_aside(aside: str, name: str) -> bool:
    """Whether the first is a name that the folder may have out of use."""
    match = _ASIDE.fullmatch(aside)
    if match is None:
        return False
    # Only a name that was too long was cut.
    return match[1] == name or (len(aside) == FILE_NAME_BYTES_MAX and name.startswith(match[1]))


def encode_metadata(topic_id: TopicId) -> bytes:
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode("ascii")


def decode_metadata(data: bytes) -> TopicId:
    """Read a `partition.metadata`.

    Raises:
        ValueError: it is damaged.
    """
    version, _, topic_id = data.decode("ascii").rstrip("\n").partition("\n")
    if version != "version: 0" or not topic_id.startswith("topic_id: "):
        raise ValueError(f"{data[:80]!r} is not 'version: 0' and 'topic_id: …'")
    return TopicId(uuid_from_text(topic_id.removeprefix("topic_id: ")))


def uuid_to_text(uuid: UUID) -> str:
    return urlsafe_b64encode(uuid.bytes).decode("ascii").rstrip("=")


def uuid_from_text(text: str) -> UUID:
    """Read what `uuid_to_text` or Kafka wrote.

    Raises:
        ValueError: it is not such a text.
    """
    try:
        uuid = UUID(bytes=b64decode(text + "==", altchars=b"-_", validate=True))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a UUID in base64") from error
    # Base64 leaves four bits over; another text with the same 128 bits is a damaged one.
    if uuid_to_text(uuid) != text:
        raise ValueError(f"{text!r} is not how {uuid} is written")
    return uuid
