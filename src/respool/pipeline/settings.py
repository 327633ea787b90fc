"""What every job is told: one value, made once from the command line."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from respool.client.kafka.bootstrap import Bootstrap

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

Recipe = Literal["forest", "logistic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """A fraud model by its name, and how it is made if it is not there."""

    name: str
    recipe: Recipe = "forest"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    # Tables, checkpoints, models and reports are kept here. All executors must see it at the same path.
    data: Path
    bootstrap: str = field(default_factory=lambda: Bootstrap.resolve(None).servers)
    topic: str = "rides"
    scores_topic: str = "fraud-scores"
    # An event that arrives so long after it happened goes into quarantine, and the dashboards' windows close after it.
    lateness_ms: int = 2 * HOUR_MS
    # No event of a sound phone is from so far in the future. One that is would close every window at once.
    clock_skew_ms: int = 5 * MINUTE_MS
    window_ms: int = HOUR_MS
    # The most that one micro-batch or one commit takes: it bounds memory, and what is done again after a crash.
    rows_per_batch: int = 2_000_000
    # Which model scores live, which one is replayed, and from which score on a ride is called fraud.
    model: ModelChoice = ModelChoice(name="v1")
    new_model: ModelChoice = ModelChoice(name="v2")
    threshold: float = 0.5
    # What is known of the rides, as `respool rides generate --truth` writes it.
    truth: Path | None = None
    # The replay's window: [since, until) of the time of arrival.
    replay_since_ms: int = 0
    replay_until_ms: int = 0
    # The warehouse reads the log from its start again, not from where it stands. The table comes out the same.
    from_start: bool = False
    # Events that the topic deleted before a table had them are counted, and do not end the job.
    accept_loss: bool = False

    def table_path(self, name: str) -> Path:
        return self.data / "tables" / name

    def checkpoint_path(self, query: str) -> Path:
        return self.data / "checkpoints" / query

    def model_path(self, name: str) -> Path:
        return self.data / "models" / name

    def report_path(self, name: str) -> Path:
        return self.data / "reports" / f"{name}.html"
