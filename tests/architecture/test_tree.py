"""tests/ has the same tree as src/respool/, and no file or package is too large to find something in."""

import pytest

from architecture.tree import (
    ROOT,
    SOURCE,
    TESTS,
    imported_by_tests,
    modules,
    outline,
    own_tests_of,
    packages,
)

# In one process, which parses each file once.
pytestmark = pytest.mark.xdist_group("architecture")

LINES_MAX = 450
MODULES_MAX = 35

# Folders in tests/ that are not named for a package: whole-system tests, and tests of what is not in src/.
FAMILIES = {
    "architecture": "the source tree and the words themselves",
    "clients": "stock Kafka clients over real sockets",
    "crash": "kill -9 on real processes",
    "deploy": "image, chart, unit, alerts and dashboard",
    "docs": "the commands and examples of the documentation",
    "interop": "beside Apache Kafka and Spark's own connector",
    "spark/places": "one job on clusters, over Connect, and in places of all kinds",
    "support": "helpers of the other tests",
    "versus": "bench/versus",
}

# A test file that is named for a module of another package, because it tests a larger thing of that name.
NAMED_FOR_SOMETHING_ELSE = {
    "tests/client/messages/test_transactions.py": "transactions of the message client",
    "tests/clients/test_metrics.py": "the metrics of a broker process, as a scraper sees them",
    "tests/clients/test_views.py": "views, read by stock clients",
    "tests/coordination/groups/test_txn_offset_commit.py": "the pure half of that API",
    "tests/docs/test_delivery.py": "docs/delivery.md",
    "tests/architecture/test_pages.py": "the pages of docs/",
    "tests/log/test_transactions.py": "transactions in a partition's log",
    "tests/spark/test_security.py": "Spark's options for TLS and SASL",
    "tests/versus/test_run.py": "bench/versus/run.py",
}

# Modules that no test file names and whose importers have no test file either: they run in another process, or a
# whole-system test covers them.
COVERED_BY_A_SYSTEM_TEST = {
    "respool.broker.handlers.share_groups.initialize_share_group_state": "test_share_states.py has it sent",
    "respool.broker.handlers.share_groups.read_share_group_state": "test_share_states.py has it sent",
    "respool.broker.handlers.share_groups.delete_share_group_state": "test_share_states.py has it sent",
    "respool.broker.handlers.share_groups.read_share_group_state_summary": "test_share_states.py has it sent",
    "respool.broker.handlers.share_groups.delete_share_group_offsets": (
        "test_alter_share_group_offsets.py sends it"
    ),
    "respool.sim.faults.nemesis": "make sim and tests/sim/planted_bugs.py run it",
    "respool.sim.faults.cluster_faults": "make sim and tests/sim/planted_bugs.py run it",
    "respool.sim.faults.disk_swaps": "make sim and tests/sim/planted_bugs.py run it",
    "respool.sim.checks.delay_watch": "make sim and tests/sim/planted_delay_bugs.py run it",
    "respool.broker.handlers.cluster.list_partition_reassignments": "test_alter_partition_reassignments.py sends it",
    "respool.broker.handlers.configs.incremental_alter_configs": "test_alter_configs.py sends it",
    "respool.broker.handlers.security.create_acls": "test_describe_acls.py sends it",
    "respool.broker.handlers.security.delete_acls": "test_describe_acls.py sends it",
    "respool.broker.handlers.security.create_delegation_token": "test_describe_delegation_token.py sends it",
    "respool.broker.handlers.security.renew_delegation_token": "test_describe_delegation_token.py sends it",
    "respool.broker.handlers.security.expire_delegation_token": "test_describe_delegation_token.py sends it",
    "respool.broker.handlers.security.alter_client_quotas": "test_describe_client_quotas.py sends it",
    "respool.broker.handlers.security.alter_user_scram_credentials": "test_describe_user_scram_credentials.py sends it",
    "respool.broker.handlers.security.sasl_authenticate": "test_sasl_handshake.py sends it",
    "respool.broker.replication.replica_fetchers": "tests/crash and tests/clients run a broker",
    "respool.columnar.record_columns": "compiled; tests/columnar sees its results",
    "respool.client.messages.async_producer": "tests/client tests the other half of its class",
    "respool.client.messages.async_consumer": "tests/client tests the other half of its class",
    "respool.client.messages.start_position": "tests/client tests the other half of its class",
    "respool.testing.process_main": "tests/testing runs it in the other process",
    "respool.testing.request_faults": "tests/testing runs it in the other process",
    "respool.testing.broker_runner": "tests/testing runs it in the other process",
    "respool.mirror.topic_sync": "tests/cli runs the command",
}

# Files and packages that are larger than the limits. Keep it short.
LARGE_FILES: dict[str, int] = {}
LARGE_PACKAGES: dict[str, int] = {}


def test_every_test_folder_belongs_to_a_package() -> None:
    folders = {file.parent for file in TESTS.rglob("test_*.py")} - {TESTS}
    astray = [
        folder.relative_to(TESTS).as_posix()
        for folder in folders
        if folder.relative_to(TESTS).as_posix() not in FAMILIES
        and not (SOURCE / folder.relative_to(TESTS) / "__init__.py").exists()
    ]
    assert astray == []


def test_every_test_file_lies_where_its_module_lies() -> None:
    homes: dict[str, list[str]] = {}
    for module in modules().values():
        homes.setdefault(module.name, []).append(own_tests_of(module).relative_to(ROOT).as_posix())
    astray = {}
    for file in TESTS.rglob("test_*.py"):
        path = file.relative_to(ROOT).as_posix()
        expected = homes.get(file.name.removeprefix("test_"), [])
        if expected and path not in expected and path not in NAMED_FOR_SOMETHING_ELSE:
            astray[path] = expected
    assert astray == {}


def test_every_module_has_tests_or_is_imported_by_what_has() -> None:
    assert _modules_without_tests() - COVERED_BY_A_SYSTEM_TEST.keys() == set()


def test_imports_come_before_everything_else() -> None:
    """Ruff allows one below `if TYPE_CHECKING:`, where a merge of two modules leaves it."""
    late = [
        f"{file.relative_to(ROOT).as_posix()}:{line}"
        for folder in (SOURCE, TESTS)
        for file in sorted(folder.rglob("*.py"))
        for line in outline(file).late_imports
    ]
    assert late == []


def test_no_file_is_too_long() -> None:
    lines = {
        file.relative_to(SOURCE).as_posix(): file.read_text().count("\n")
        for file in SOURCE.rglob("*.py")
    }
    too_long = {
        path: count for path, count in lines.items() if count > LARGE_FILES.get(path, LINES_MAX)
    }
    assert too_long == {}


def test_no_package_has_too_many_modules() -> None:
    counts = {
        package.relative_to(SOURCE).as_posix(): len(
            [file for file in package.glob("*.py") if file.name != "__init__.py"]
        )
        for package in packages()
    }
    too_many = {
        path: count
        for path, count in counts.items()
        if count > LARGE_PACKAGES.get(path, MODULES_MAX)
    }
    assert too_many == {}


@pytest.mark.parametrize("path", [*NAMED_FOR_SOMETHING_ELSE])
def test_exceptions_of_the_test_tree_exist(path: str) -> None:
    assert (ROOT / path).exists()


def test_exceptions_are_still_needed() -> None:
    assert COVERED_BY_A_SYSTEM_TEST.keys() - modules().keys() == set()
    assert COVERED_BY_A_SYSTEM_TEST.keys() - _modules_without_tests() == set()
    assert [path for path in LARGE_FILES if not (SOURCE / path).exists()] == []
    assert [path for path in LARGE_PACKAGES if not (SOURCE / path).is_dir()] == []


def _modules_without_tests() -> set[str]:
    tested = {
        name
        for name, file in modules().items()
        if own_tests_of(file).exists() or name in imported_by_tests()
    }
    through_an_importer = {name for one in tested for name in outline(modules()[one]).imports}
    return modules().keys() - tested - through_an_importer
