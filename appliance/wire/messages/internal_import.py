"""Between `appliance topics import` and a partition's leader, our own: ImportRecords.

Kafka has no API that appends records at given offsets.
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Bytes, Int16, Int32, Int64, Records, String

IMPORT_RECORDS = 20011


class ImportRecordsRequest(Request["ImportRecordsResponse"], api_key=IMPORT_RECORDS, versions=(0, 0), flexible_from=0):
    """Append batches of another log as they are, but for the leader epoch; or, without any, end an import."""

    topic: String = ""
    partition: Int32 = 0
    expected_end: Int64 = 0
    """Where the log must end now. So a request that is sent again does no harm."""
    start_offset: Int64 = 0
    """Where a log that is still empty begins; others are left as they are."""
    records: Records | None = None
    finish: Bool = False
    """All is there: take over the producers and make everything durable."""
    producers: Bytes = field(default=b"")
    """Kafka's producer snapshot at the end of the log."""


class ImportRecordsResponse(Struct, api_key=IMPORT_RECORDS, versions=(0, 0), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    log_start_offset: Int64 = -1
    log_end_offset: Int64 = -1
    """OFFSET_OUT_OF_RANGE comes with it too: from there an import may be resumed."""
