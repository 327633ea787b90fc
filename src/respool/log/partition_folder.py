"""A partition's folder: its name, the topic it belongs to, and its name once it is out of use.

`<topic>-<partition>` holds a log; its `partition.metadata` has the topic's id, since an earlier topic may have had the
same name. A folder out of use is renamed `<topic>-<partition>.<32 hex digits>-delete`, or `-stray` if its deletion was
not requested. All as in Kafka.
"""

import re
from base64 import b64decode, urlsafe_b64encode
from uuid import UUID

from respool.log.file_names import FILE_NAME_BYTES_MAX
from respool.model.errors import InvalidTopic
from respool.model.ids import TopicId, TopicPartition, check_topic_name

METADATA_NAME = "partition.metadata"
# Its name until the log's first sync (folder_durability.py).
NEW_METADATA_NAME = METADATA_NAME + ".new"
STRAY = "-stray"
_PARTITION_MAX = 2**31 - 1
_ASIDE = re.compile(r"(.+)\.[0-9a-f]{32}-[a-z]+")
_FOLDER = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})")


def folder_name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


def advice_on_loss(folder: str) -> str:
    """The last part of errors that keep the partition offline: how to bring it back. See folder/accepted_loss.py."""
    return (
        f"stop the broker and restore {folder} from a backup, or accept the loss with: "
        f"respool log accept-loss DATA_FOLDER {folder}"
    )


def parse_folder_name(name: str) -> TopicPartition | None:
    """Return the partition; None for any other name. Topic names may contain dashes and digits: the last dash
    splits.
    """
    match = _FOLDER.fullmatch(name)
    if match is None or int(match[2]) > _PARTITION_MAX:
        return None
    try:
        check_topic_name(match[1])
    except InvalidTopic:
        return None
    return TopicPartition(match[1], int(match[2]))


def name_aside(name: str, *, tag: UUID, suffix: str) -> str:
    """The folder's name once it is out of use. If it would be too long, the topic part is shortened."""
    ending = f".{tag.hex}{suffix}"
    return name[: FILE_NAME_BYTES_MAX - len(ending)] + ending


def is_aside(aside: str, name: str) -> bool:
    """True if the first may be the out-of-use name of that folder."""
    match = _ASIDE.fullmatch(aside)
    if match is None:
        return False
    # Only a name that was too long is shortened.
    return match[1] == name or (len(aside) == FILE_NAME_BYTES_MAX and name.startswith(match[1]))


def encode_metadata(topic_id: TopicId) -> bytes:
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode("ascii")


def decode_metadata(data: bytes) -> TopicId:
    """Decode a `partition.metadata` file.

    Raises:
        ValueError: it is damaged.
    """
    version, _, topic_id = data.decode("ascii").rstrip("\n").partition("\n")
    if version != "version: 0" or not topic_id.startswith("topic_id: "):
        raise ValueError(f"{data[:80]!r} is not 'version: 0' and 'topic_id: …'")
    return TopicId(uuid_from_text(topic_id.removeprefix("topic_id: ")))


def uuid_to_text(uuid: UUID) -> str:
    """A UUID in Kafka's format: 22 characters of URL-safe base64 without padding."""
    return urlsafe_b64encode(uuid.bytes).decode("ascii").rstrip("=")


def uuid_from_text(text: str) -> UUID:
    """Decode the output of `uuid_to_text` or of Kafka.

    Raises:
        ValueError: it is not such a text.
    """
    try:
        uuid = UUID(bytes=b64decode(text + "==", altchars=b"-_", validate=True))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a UUID in base64") from error
    # Base64 has four spare bits: another text for the same 128 bits is damaged.
    if uuid_to_text(uuid) != text:
        raise ValueError(f"{text!r} is not how {uuid} is written")
    return uuid
