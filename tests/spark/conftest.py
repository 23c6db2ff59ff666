"""What the tests of Spark share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark.session import spark_session
from tests.support.java_tools import QUICK_START


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Quick to start rather than quick to run. A task may fail twice: local mode gives up at the first failure else.

    One for all modules: whoever sets a config takes it back.
    """
    options = " ".join(QUICK_START)
    session = spark_session("tests", cores="2, 3", spark__driver__extraJavaOptions=options)
    yield session
    session.stop()
