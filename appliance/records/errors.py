"""What can be wrong with the bytes of a batch."""

from __future__ import annotations

from appliance.base.errors import ErrorCode, KafkaError


class CorruptBatch(KafkaError):
    """The bytes are not a whole, undamaged batch of version 2. The message says what was found where."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.CORRUPT_MESSAGE) -> None:
        super().__init__(code, message)
