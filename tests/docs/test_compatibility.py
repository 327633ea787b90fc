"""The tables of docs/compatibility.md are those that clients are told."""

import re

from docs.runnable import ROOT
from respool.model.kafka_settings.inert_topic_settings import INERT, REFUSED
from respool.model.topic_config import CONFIG_RULES
from respool.model.view_config import FIXED, VIEW_RULES
from respool.wire.api_table import API_TABLE


def test_the_page_has_every_api_with_its_versions_and_no_other() -> None:
    page = (ROOT / "docs/compatibility.md").read_text().split("## What differs")[0]
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    told = re.findall(r"([A-Z]\w+) (\d+)(?:-(\d+))?", " ".join(rows))
    assert {name: (int(low), int(high or low)) for name, low, high in told} == {
        api.name: (api.version_min, api.version_max) for api in API_TABLE.values()
    }


def test_the_page_has_every_topic_setting_and_what_becomes_of_it() -> None:
    page = (ROOT / "docs/compatibility.md").read_text().split("\n## Topic settings\n")[1]
    table = page.split("\n## ")[0]
    told = {
        name: verdict
        for names, verdict in re.findall(r"^\| (`.*?`) \| (\w+) \|", table, re.MULTILINE)
        for name in re.findall(r"`([a-z0-9.]+)`", names)
    }
    acts = dict.fromkeys(CONFIG_RULES.keys() - INERT, "acts")
    assert told == acts | dict.fromkeys(INERT, "accepted") | dict.fromkeys(REFUSED, "refused")


def test_the_page_has_every_setting_of_views() -> None:
    page = (ROOT / "docs/compatibility.md").read_text().split("\n## Views\n")[1]
    told = re.findall(r"^\| `([a-z0-9.]+)` \| (yes|no) \|", page, re.MULTILINE)
    assert dict(told) == {name: "no" if name in FIXED else "yes" for name in VIEW_RULES}
