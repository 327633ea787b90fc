"""Spark with brokers that ask for TLS and a login, by the options of a job that was written for Kafka."""

from typing import TYPE_CHECKING

import pytest
import trustme

from support.secured_gate import secured_broker, server_side

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def options(address: str, authority: trustme.CA, password: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": address,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": authority.cert_pem.bytes().decode(),
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{MODULE} required username="etl" password="{password}";',
    }


def test_a_frame_goes_to_a_secured_topic_and_back(spark: "SparkSession") -> None:
    authority = trustme.CA()
    with secured_broker(tls=server_side(authority), users={"etl": "hunter2"}) as gate:
        way = options(gate.address, authority, "hunter2")
        rows = spark.range(5_000).selectExpr("cast(id as string) as value")
        rows.write.format("respool").options(**way, topic="rides").mode("append").save()
        read = spark.read.format("respool").options(**way, subscribe="rides").load()
        total = read.selectExpr("sum(cast(cast(value as string) as bigint)) as total").collect()
        assert total[0].total == sum(range(5_000))
        assert set(gate.logins) == {"etl"}

        refused = options(gate.address, authority, "guess") | {"subscribe": "rides"}
        with pytest.raises(Exception, match="refuses 'etl' by SCRAM-SHA-512") as told:
            spark.read.format("respool").options(**refused).load().count()
        assert "guess" not in str(told.value)
