"""What people do with Spark's own Kafka connector, against whatever broker is named. Run by its own Python and Spark.

It knows nothing of Respool: arguments are the broker's address and a folder; what it saw is printed as JSON.
"""

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr

ROWS = 5_000


def main(bootstrap: str, folder: str, jars: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    def read(**options: Any) -> DataFrame:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        return reader.options(**options).load()

    def totals(rows: DataFrame) -> list[int]:
        (seen,) = rows.selectExpr(
            "count(*)",
            "count(DISTINCT CAST(CAST(value AS STRING) AS INT))",
            "coalesce(sum(CAST(CAST(value AS STRING) AS INT)), 0)",
        ).collect()
        return list(seen)

    seen: dict[str, Any] = {}
    numbers = spark.range(ROWS).select(
        expr("CAST('batch' AS STRING)").alias("topic"),
        expr("CAST(id % 100 AS STRING)").alias("key"),
        expr("CAST(id AS STRING)").alias("value"),
        expr("array(struct('n' AS key, CAST(CAST(id AS STRING) AS BINARY) AS value))").alias(
            "headers"
        ),
    )
    (
        numbers.write.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("includeHeaders", "true")
        .save()
    )
    seen["batch"] = totals(read(subscribe="batch"))
    seen["pattern"] = totals(read(subscribePattern="ba.*h"))
    half = json.dumps({"batch": {"0": 100, "1": 100}})
    seen["from offsets"] = totals(read(subscribe="batch", startingOffsets=half))
    seen["splits"] = totals(read(subscribe="batch", minPartitions="7"))
    seen["committed"] = totals(
        read(subscribe="batch", **{"kafka.isolation.level": "read_committed"})
    )
    with_headers = read(subscribe="batch", includeHeaders="true")
    seen["headers"] = with_headers.where(
        (col("headers")[0]["key"] == "n") & (col("headers")[0]["value"] == col("value"))
    ).count()
    # History: written by somebody else, with times a second apart.
    seen["since a time"] = totals(read(subscribe="history", startingTimestamp="1700000500000"))
    seen["between times"] = totals(
        read(
            subscribe="history", startingTimestamp="1700000100000", endingTimestamp="1700000200000"
        )
    )
    for attempt in range(2):
        # The second run goes on from the checkpoint, with what came in between.
        query = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", "batch")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "1000")
            .load()
            .selectExpr("key", "value", "'streamed' AS topic")
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        seen[f"streamed {attempt}"] = totals(read(subscribe="streamed"))
        if attempt == 0:
            more = spark.range(ROWS, 2 * ROWS).selectExpr("CAST(id AS STRING) AS value")
            more.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option(
                "topic", "batch"
            ).save()
    print(json.dumps(seen))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
