"""The option `tags`: values of headers as JSON, or a condition in the language of views. Pure."""

from respool.model.conditions.clause_parser import InvalidWhere
from respool.model.where import parse_where, where_of_tags
from respool.spark.option_values import BadOption, Options
from respool.spark.source.start_points import json_object

TAGS = "tags"


def tags_of(options: Options) -> str | None:
    """The canonical text of the condition that every row fulfills; None if the option is not given.

    Raises:
        BadOption: it is not a condition, or no message can match it.
    """
    said = options.text(TAGS)
    if said is None:
        return None
    try:
        if said.startswith(("{", "[")):
            return str(where_of_tags(json_object(TAGS, said, of="header names")))
        return str(parse_where(said))
    except InvalidWhere as error:
        raise BadOption(
            f'{TAGS} = {said!r}: {error}. Give JSON, such as {{"region": ["eu", "us"]}}, or a condition, '
            "such as region in ('eu', 'us') and absent(test)"
        ) from None
