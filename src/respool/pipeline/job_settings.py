"""Settings of all jobs: one value, created once from the command line."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from respool.client.kafka.bootstrap import Bootstrap
from respool.client.kafka.security import IN_THE_CLEAR, Security

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

Recipe = Literal["forest", "logistic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """A fraud model's name, and how it is trained if it does not exist."""

    name: str
    recipe: Recipe = "forest"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    # The folder of tables, checkpoints, models and reports. All executors must see it at the same path.
    data: Path
    bootstrap: str = field(default_factory=lambda: Bootstrap.resolve(None).servers)
    security: Security = IN_THE_CLEAR
    # Client id and timeouts as arguments of `Cluster`, in place of the defaults.
    client: Mapping[str, Any] = field(default_factory=dict)
    topic: str = "rides"
    scores_topic: str = "fraud-scores"
    # Maximum lateness: later events go to quarantine, and the dashboards' windows close after it.
    lateness_ms: int = 2 * HOUR_MS
    # Events further in the future than this are invalid, because one of them would close every window.
    clock_skew_ms: int = 5 * MINUTE_MS
    window_ms: int = HOUR_MS
    # Maximum size of a micro-batch or commit: it bounds memory, and the work repeated after a crash.
    rows_per_batch: int = 2_000_000
    # The live model, the replayed model, and the score threshold for fraud.
    model: ModelChoice = ModelChoice(name="v1")
    new_model: ModelChoice = ModelChoice(name="v2")
    threshold: float = 0.5
    # The truth file of `respool rides generate --truth`.
    truth: Path | None = None
    # The replay's window of arrival time: [since, until).
    replay_since_ms: int = 0
    replay_until_ms: int = 0
    # Read the log from its start instead of the table's position. The resulting table is the same.
    from_start: bool = False
    # Count events that the topic deleted before a table read them, instead of failing the job.
    accept_loss: bool = False

    def table_path(self, name: str) -> Path:
        return self.data / "tables" / name

    def checkpoint_path(self, query: str) -> Path:
        return self.data / "checkpoints" / query

    def model_path(self, name: str) -> Path:
        return self.data / "models" / name

    def report_path(self, name: str) -> Path:
        return self.data / "reports" / f"{name}.html"
