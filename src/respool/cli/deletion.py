"""Deletes topics or views, one after the other: of `respool topic delete` and `respool view delete`."""

from collections.abc import Callable, Iterable

from respool.cli import output
from respool.model.operator_errors import NotFound, OperatorError


def delete_each(
    names: Iterable[str], delete: Callable[[str], None], *, noun: str, as_json: bool
) -> None:
    """Delete all of them, although some fail; print which are gone. `noun` names them in JSON.

    Raises:
        OperatorError: some were not deleted. The errors before the last one are printed.
    """
    failed: list[OperatorError] = []
    deleted: dict[str, bool] = {}
    for name in names:
        deleted[name] = False
        try:
            delete(name)
        except NotFound:
            # Another client deleted it first; the result is the same.
            pass
        except OperatorError as error:
            failed.append(
                OperatorError(f"{name} was not deleted: {error.message}", hint=error.hint)
            )
            continue
        deleted[name] = True
        if not as_json:
            output.note(f"deleted {name}")
    if as_json:
        documents = [{noun: name, "deleted": is_gone} for name, is_gone in deleted.items()]
        output.print_json({f"{noun}s": documents})
    if failed:
        for failure in failed[:-1]:
            output.print_error(failure.message, failure.hint)
        raise failed[-1]
