import pytest

from cli.json_shape import check_shape
from respool.cli import output


@pytest.mark.parametrize(
    "document",
    [
        [],
        "rides",
        {"rides": {"0": 5}},
        {"topics": [{"topic": "a"}, {"topic": "b", "size": 1}]},
        {"topics": [{"topic": "a"}, "b"]},
        {"spans": [[0, 5]]},
        {"partition_count": "3"},
        {"max.bytes": 5},
        {"state": "waiting for broker 3"},
    ],
)
def test_a_document_of_another_shape_is_found(document: object) -> None:
    with pytest.raises(AssertionError):
        check_shape(document)


def test_every_document_that_a_test_here_prints_is_checked() -> None:
    with pytest.raises(AssertionError, match="not the name of a field"):
        output.print_json({"rides": {"0": 5}})
    with pytest.raises(AssertionError, match="not the name of a field"):
        output.json_line({"rides": {"0": 5}})
