"""Between `appliance cluster clients` and brokers, our own: BrokerClients.

Kafka hands what clients tell of themselves to a plugin; no API shows it.
"""

from __future__ import annotations

from appliance.base.ids import ZERO_UUID
from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Float64, Int16, Int32, Int64, String, Uuid

BROKER_CLIENTS = 20013


class BrokerClientsRequest(Request["BrokerClientsResponse"], api_key=BROKER_CLIENTS, versions=(0, 0), flexible_from=0):
    """The clients that tell a broker of themselves."""

    client_instance_id: Uuid = ZERO_UUID
    """Whose metrics are to be in the answer; zero: nobody's."""


class BrokerClientsMetric(Struct):
    name: String = ""
    attributes: String = ""
    """`key=value`, with commas between them."""
    value: Float64 = 0.0


class BrokerClientsClient(Struct):
    client_instance_id: Uuid = ZERO_UUID
    client_id: String = ""
    principal: String = ""
    software_name: String = ""
    software_version: String = ""
    address: String = ""
    about: String = ""
    """What it says of itself: its group, its rack; as attributes are written."""
    subscription_id: Int32 = 0
    interval_ms: Int32 = 0
    requested_metrics: list[String] = field()
    pushes: Int64 = 0
    push_age_ms: Int64 = -1
    """-1: none has come."""
    values: Int32 = 0
    """How many metrics the last push had."""
    dropped: Int32 = 0
    """Those beyond the limit."""
    metrics: list[BrokerClientsMetric] = field()


class BrokerClientsResponse(Struct, api_key=BROKER_CLIENTS, versions=(0, 0), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    clients: list[BrokerClientsClient] = field()
