"""Bytes in JSON documents: a string if they are UTF-8, null for null, otherwise `{"base64": "..."}`."""

import base64
import binascii


class BadInput(ValueError):
    """A value in a line of input is invalid; the message says why."""


def bytes_to_json(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def bytes_from_json(value: object, name: str) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError:
            raise BadInput(f"{name} holds half of a surrogate pair, which is not text") from None
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError) as error:
            raise BadInput(f"{name} is not base64: {error}") from None
    raise BadInput(
        f'{name} must be a string, null or {{"base64": "…"}}; JSON as a value is written as a string'
    )
