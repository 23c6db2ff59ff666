"""Makes `format("appliance")` known to every Spark session: Spark imports the modules named `pyspark_…` by itself.

Kept light and free of side effects for that reason.
"""

from spark.source import ApplianceDataSource as DefaultSource

__all__ = ["DefaultSource"]
