"""What becomes of a broker that has ended, in words."""

import asyncio

from respool.cli.cluster_registry import ask_entry, what_is_next
from respool.model.cluster import RegistryEntry
from respool.model.settings import Settings


def test_a_broker_that_ended_is_started_again_unless_it_was_taken_out() -> None:
    def told(entry: RegistryEntry, *, was_last: bool = False) -> str:
        return what_is_next(
            entry, 2, flags="--config f.toml", again="respool serve", was_last=was_last
        )

    assert told(RegistryEntry()).startswith("the others go on; start it again with: respool serve")
    # etcd ends with the last one, and the command would wait for it in vain.
    assert "respool serve" not in told(RegistryEntry(), was_last=True)
    assert "by the next run" in told(RegistryEntry(), was_last=True)
    assert "respool cluster remove 2 --config f.toml" in told(RegistryEntry(is_drained=True))
    removed = told(RegistryEntry(is_drained=True, is_removed=True))
    assert removed == "it was removed from the cluster: the next run leaves it out"


def test_where_etcd_does_not_answer_nothing_is_known_of_a_broker() -> None:
    settings = Settings.from_flat(etcd="127.0.0.1:1", session_ttl_ms=2_000)
    assert asyncio.run(ask_entry(settings, 1)) == RegistryEntry()
