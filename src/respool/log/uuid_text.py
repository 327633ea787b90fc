"""A UUID as Kafka writes it everywhere: 22 characters of URL-safe base64, without padding."""

from base64 import b64decode, urlsafe_b64encode
from uuid import UUID


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
