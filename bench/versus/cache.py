"""Where fetched programs lie: `.cache/` in the repository, which git ignores. Deleting it costs a download."""

from bench.broker_process import ROOT

CACHE_FOLDER = ROOT / ".cache"
