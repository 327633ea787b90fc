"""A fraud model: a Spark ML pipeline, the usual prices of the cities it was trained on, and its metadata.

```
models/<name>/pipeline/         as Spark ML saves it
models/<name>/prices.json       city -> usual price
models/<name>/about.json        recipe, features, and what it was trained on
```
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.classification import LogisticRegression, RandomForestClassifier
from pyspark.ml.feature import StandardScaler, VectorAssembler
from pyspark.ml.functions import vector_to_array
from pyspark.sql import functions as f

from respool.pipeline.features import FEATURES, finished_rides, usual_prices, with_features
from respool.pipeline.jobs import ModelMissing, NothingToLearn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from respool.pipeline.job_settings import ModelChoice, PipelineSettings, Recipe

SEED = 7
TREES = 20
DEPTH = 6
WEIGHT_MAX = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    name: str
    recipe: str
    features: tuple[str, ...]
    # It was trained on rides that ended before this time.
    trained_until_ms: int
    rides: int
    frauds: int


class FraudModel:
    """Scores finished rides. Created by `train` or `load`."""

    def __init__(self, about: About, pipeline: PipelineModel, prices: dict[str, float]) -> None:
        self.about = about
        self._pipeline = pipeline
        self._prices = prices

    def score(self, rides: "DataFrame", threshold: float) -> "DataFrame":
        """Return the rides with `score`, `is_fraud` and `model`. Rides that are only history are scored too."""
        prices = prices_frame(rides.sparkSession, self._prices)
        scored = self._pipeline.transform(with_features(rides, prices))
        told = vector_to_array(f.col("probability"))[1]
        # A ride without a score is not considered fraud.
        likely = f.when(told.isNotNull() & ~f.isnan(told), told).otherwise(0.0)
        return scored.select(
            *(scored[name] for name in rides.columns),
            f.lit(self.about.name).alias("model"),
            # Rounded, so that it survives conversion to text and back.
            f.round(likely, 6).alias("score"),
            (f.round(likely, 6) >= threshold).alias("is_fraud"),
        )

    def save(self, folder: Path) -> None:
        """Save atomically: the folder is renamed when it is complete."""
        made = folder.with_name(f".{folder.name}.new")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        self._pipeline.write().overwrite().save(str(made / "pipeline"))
        (made / "prices.json").write_text(json.dumps(self._prices, ensure_ascii=False, indent=1))
        (made / "about.json").write_text(json.dumps(asdict(self.about), indent=1))
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)


def load(folder: Path) -> FraudModel:
    """
    Raises:
        ModelMissing: it does not exist.
    """
    if not (folder / "about.json").exists():
        raise ModelMissing(f"there is no model {folder.name!r} in {folder.parent}")
    about: dict[str, Any] = json.loads((folder / "about.json").read_text())
    return FraudModel(
        About(**{**about, "features": tuple(about["features"])}),
        PipelineModel.load(str(folder / "pipeline")),
        json.loads((folder / "prices.json").read_text()),
    )


def found_or_trained(
    choice: "ModelChoice",
    settings: "PipelineSettings",
    events: "DataFrame",
    *,
    until_ms: "int | Callable[[DataFrame], int]",
) -> FraudModel:
    """Return the model of this name; if there is none, train one on rides that ended before `until_ms`.

    `until_ms` may be a function of the events, which is called only if a model is trained.

    Raises:
        ModelMissing: there is no such model, and no truth with which to train one.
    """
    folder = settings.model_path(choice.name)
    if (folder / "about.json").exists():
        return load(folder)
    if settings.truth is None:
        raise ModelMissing(
            f"there is no model {choice.name!r} in {folder.parent}, and none can be trained without the truth: "
            "give --truth FILE, as respool rides generate --truth wrote it, or name a model that is there"
        )
    moment = until_ms if isinstance(until_ms, int) else until_ms(events)
    before = f.col("event_time") < f.timestamp_millis(f.lit(moment))
    frauds = frauds_of(events.sparkSession, settings.truth)
    model = train(
        finished_rides(events.where(before)),
        frauds,
        name=choice.name,
        recipe=choice.recipe,
        until_ms=moment,
    )
    model.save(folder)
    return model


def train(
    rides: "DataFrame", frauds: "DataFrame", *, name: str, recipe: "Recipe", until_ms: int
) -> FraudModel:
    """Train on finished rides; those in `frauds` (by `ride_id`) are fraud.

    Raises:
        NothingToLearn: all or none of them are fraud.
    """
    spark = rides.sparkSession
    prices = {
        row["city"]: row["price_level"] for row in usual_prices(rides).orderBy("city").collect()
    }
    told = frauds.select("ride_id").distinct().withColumn("label", f.lit(1.0))
    seen = with_features(rides, prices_frame(spark, prices)).join(told, "ride_id", "left")
    data = seen.select(
        "ride_id", *FEATURES, f.coalesce("label", f.lit(0.0)).alias("label")
    ).persist()
    try:
        counted = data.agg(f.count("*").alias("all"), f.count_if(f.col("label") == 1).alias("bad"))
        total, bad = counted.collect()[0]
        if not 0 < bad < total:
            raise NothingToLearn(
                f"of {total:,} finished rides before {_time(until_ms)} {bad:,} are fraud: a model needs both kinds; "
                "is it the truth of these rides?"
            )
        # Fraud is rare, and a false negative costs more than a false positive, up to a point.
        weight = f.when(f.col("label") == 1, min(WEIGHT_MAX, (total - bad) / bad)).otherwise(1.0)
        # Sorted, because a forest draws its samples by position: the same rides give the same model.
        ready = data.withColumn("weight", weight).repartition(1).sortWithinPartitions("ride_id")
        pipeline = _pipeline(recipe).fit(ready)
    finally:
        data.unpersist()
    about = About(
        name=name,
        recipe=recipe,
        features=FEATURES,
        trained_until_ms=until_ms,
        rides=total,
        frauds=bad,
    )
    return FraudModel(about, pipeline, prices)


def frauds_of(spark: "SparkSession", truth: Path) -> "DataFrame":
    """Return the fraudulent rides: `ride_id` and `pattern`."""
    return (
        spark.read.parquet(str(truth.absolute()))
        .where("kind = 'fraud'")
        .select("ride_id", "pattern")
    )


def prices_frame(spark: "SparkSession", prices: dict[str, float]) -> "DataFrame":
    return spark.createDataFrame(list(prices.items()), "city string, price_level double")


def _pipeline(recipe: "Recipe") -> Pipeline:
    together = VectorAssembler(inputCols=list(FEATURES), outputCol="together", handleInvalid="keep")
    if recipe == "forest":
        forest = RandomForestClassifier(
            featuresCol="together", weightCol="weight", numTrees=TREES, maxDepth=DEPTH, seed=SEED
        )
        return Pipeline(stages=[together, forest])
    scaled = StandardScaler(inputCol="together", outputCol="scaled", withMean=True)
    regression = LogisticRegression(
        featuresCol="scaled", weightCol="weight", maxIter=30, regParam=0.001
    )
    return Pipeline(stages=[together, scaled, regression])


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%MZ")
