"""How a reply says what became of an item: a code, and in most admin replies words too."""

from respool.model.errors import RequestError


def error_fields(error: RequestError | None) -> dict[str, object]:
    """Code and words of an error; of none, 0 and no words."""
    if error is None:
        return {"error_code": 0, "error_message": None}
    return {"error_code": error.code, "error_message": error.message}


def error_code(error: RequestError | None) -> int:
    return 0 if error is None else error.code
