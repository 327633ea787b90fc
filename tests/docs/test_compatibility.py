"""The table of docs/compatibility.md is the one that clients are told."""

import re

from docs.runnable import ROOT
from respool.wire.api_table import API_TABLE


def test_the_page_has_every_api_with_its_versions_and_no_other() -> None:
    page = (ROOT / "docs/compatibility.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    told = re.findall(r"([A-Z]\w+) (\d+)(?:-(\d+))?", " ".join(rows))
    assert {name: (int(low), int(high or low)) for name, low, high in told} == {
        api.name: (api.version_min, api.version_max) for api in API_TABLE.values()
    }
