"""Every API has one handler, in the file of its name, with the right that it needs."""

import inspect
from pathlib import Path

import pytest

from respool.broker import handlers
from respool.broker.dispatch import HANDLERS
from respool.broker.handlers.support.registration import REGISTERED, serves
from respool.broker.handlers.support.rights import READ_TOPIC, Right
from respool.wire.api_table import API_TABLE, Api

# What every client may ask, also without any right.
FREE = {Api.API_VERSIONS, Api.DESCRIBE_CLUSTER}


def test_every_api_of_the_table_has_a_handler() -> None:
    assert HANDLERS.keys() == API_TABLE.keys() == set(Api)


@pytest.mark.parametrize("api", Api, ids=lambda api: api.name)
def test_a_handler_stands_in_the_file_of_its_api(api: Api) -> None:
    handler = HANDLERS[api]
    assert handler.__name__ == api.name.lower()
    package, _, module = handler.__module__.rpartition(".")
    assert module == api.name.lower()
    assert package.rpartition(".")[0] == handlers.__name__


def test_every_file_beside_the_support_package_is_a_handler() -> None:
    folder = Path(next(iter(handlers.__path__)))
    files = [one.stem for one in folder.glob("*/*.py") if one.parent.name != "support"]
    assert sorted(set(files) - {"__init__"}) == sorted(api.name.lower() for api in Api)
    assert [one.stem for one in folder.glob("*.py")] == ["__init__"]


@pytest.mark.parametrize("api", Api, ids=lambda api: api.name)
def test_every_api_says_which_right_it_needs(api: Api) -> None:
    rights = REGISTERED[api].rights
    assert bool(rights) is (api not in FREE)
    for right in rights:
        for one in (right,) if isinstance(right, Right) else right.rights:
            assert isinstance(one, Right)


def test_a_handler_has_to_serve_the_versions_that_clients_are_told() -> None:
    with pytest.raises(AssertionError):
        serves(Api.HEARTBEAT, versions=(0, 3), rights=(READ_TOPIC,))(HANDLERS[Api.HEARTBEAT])


def test_an_api_has_no_second_handler() -> None:
    with pytest.raises(AssertionError, match="HEARTBEAT has two handlers"):
        serves(Api.HEARTBEAT, versions=(0, 4), rights=(READ_TOPIC,))(HANDLERS[Api.HEARTBEAT])


def test_registration_leaves_the_function_as_it_is() -> None:
    assert inspect.isfunction(HANDLERS[Api.HEARTBEAT])
