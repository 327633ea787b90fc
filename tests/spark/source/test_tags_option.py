"""The option `tags`, in both of its forms."""

import pytest

from respool.model.where import parse_where
from respool.spark.option_values import BadOption, Options
from respool.spark.source.tags_option import tags_of


@pytest.mark.parametrize(
    ("said", "condition"),
    [
        ('{"region": ["eu", "us"]}', "region in ('eu', 'us')"),
        (' {"region": "eu", "tag": ["paid"]} ', "region = 'eu' and tag = 'paid'"),
        ('{"größe": "µ"}', "\"größe\" = 'µ'"),
        ("region in ('us','eu') and absent(test)", "region in ('eu', 'us') and absent(test)"),
        ("tag = x'00ff'", "tag = x'00ff'"),
    ],
)
def test_tags_are_json_or_a_condition(said: str, condition: str) -> None:
    assert tags_of(Options({"Tags": said})) == condition
    assert str(parse_where(condition)) == condition


def test_without_the_option_there_is_no_condition() -> None:
    assert tags_of(Options({})) is None


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ("", "tags = '': position 1: found the end, expected a header's name"),
        ("{}", "tags = '{}': an object with header names is needed"),
        ('["paid"]', "an object with header names is needed"),
        ('{"tag": "paid"', "is no JSON"),
        ('{"tag": "paid", "tag": "open"}', "a name stands twice among tag, tag"),
        ('{"tag": 7}', "tag: 7 is not a value; give text, bytes, or several"),
        ('{"tag": ["paid", null]}', "tag: None is not a value; give text or bytes"),
        ('{"tag": []}', "tag: no values, so that no record could match"),
        ('{"tag": {"a": 1}}', "tag: {'a': 1} is not a value"),
        ("tag = paid", "position 7: found `paid`, expected a value in single quotes"),
        ("absent(tag) and tag = 'a'", "no record can match absent(tag) and tag = 'a'"),
    ],
)
def test_what_is_no_condition_is_refused_with_the_reason(said: str, says: str) -> None:
    with pytest.raises(BadOption) as refused:
        tags_of(Options({"tags": said}))
    assert says in str(refused.value)
    assert str(refused.value).startswith(f"tags = {said!r}")
