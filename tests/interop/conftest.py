"""Apache Kafka's scripts choose their own garbage collector, and a JVM refuses two."""

import os
from collections.abc import Iterator

import pytest

from support.spark import JVM_OPTIONS


@pytest.fixture(scope="package", autouse=True)
def _jvms_with_kafkas_options() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        if os.environ.get("JDK_JAVA_OPTIONS") == JVM_OPTIONS:
            patched.delenv("JDK_JAVA_OPTIONS")
        yield
