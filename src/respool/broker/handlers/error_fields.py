"""The two fields in which an item of an admin reply says what became of it."""

from respool.model.errors import RequestError


def error_fields(error: RequestError | None) -> dict[str, object]:
    """Code and words of an error; of none, 0 and no words."""
    if error is None:
        return {"error_code": 0, "error_message": None}
    return {"error_code": error.code, "error_message": error.message}
