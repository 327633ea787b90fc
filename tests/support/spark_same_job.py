"""One job, wherever it runs: reads a topic in a batch, and streams it into another with totals of each city.

`spark_same_job.py PLACE BOOTSTRAP FOLDER OUT` prints JSON. PLACE is `--master`'s argument, `connect` for a server of
Spark Connect of its own, or `sc://HOST:PORT` for one that runs.
"""

import json
import sys
from typing import TYPE_CHECKING, Any

from respool.spark.starting import prepare_environment, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_at(place: str) -> "SparkSession":
    if place == "connect" or place.startswith("sc://"):
        prepare_environment()
        from pyspark.sql import SparkSession

        remote = "local[2]" if place == "connect" else place
        made: SparkSession = SparkSession.builder.remote(remote).getOrCreate()
        return made
    return session("same job", master=place, settings={"spark.executor.memory": "512m"})


def main(place: str, bootstrap: str, folder: str, out: str) -> None:
    spark = spark_at(place)
    print(json.dumps(run(spark, bootstrap, folder, out)))
    spark.stop()


def run(spark: "SparkSession", bootstrap: str, folder: str, out: str) -> dict[str, Any]:
    def read(topic: str) -> Any:
        reader = spark.read.format("respool").option("kafka.bootstrap.servers", bootstrap)
        return reader.option("subscribe", topic).load()

    rides = read("rides").selectExpr("CAST(key AS STRING) AS city", "CAST(value AS STRING) AS fare")
    totals = rides.groupBy("city").agg({"fare": "sum", "*": "count"}).orderBy("city").collect()

    for _ in range(2):
        # The second run finds nothing left to do.
        query = (
            spark.readStream.format("respool")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", "rides")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "700")
            .load()
            .selectExpr("key", "value")
            .writeStream.format("respool")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", out)
            .option("checkpointLocation", f"{folder}/{out}")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    copied = read(out).selectExpr("count(*)", "count(DISTINCT value)").collect()
    return {"totals": [list(row) for row in totals], "copied": list(copied[0])}


if __name__ == "__main__":
    main(*sys.argv[1:])
