"""The way to each broker, for those who ask several of them: one link each, made anew when its address changes."""

from __future__ import annotations

from typing import Any

from appliance.broker_actors.broker_link import BrokerLink


class BrokerLinks:
    """On the loop's thread. `broker` has an image and `replication.link_to`."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self._links: dict[int, BrokerLink] = {}

    def to(self, broker_id: int) -> BrokerLink | None:
        """The link to a broker; None when it is not registered, or cannot be reached by any address."""
        broker = self._broker.image.brokers.get(broker_id)
        link = self._links.get(broker_id)
        if broker is None:
            return None
        if link is not None and link.address != (broker.host, broker.port):
            link.close()
            link = None
        if link is None:
            link = self._broker.replication.link_to(broker_id)
            if link is not None:
                self._links[broker_id] = link
        return link

    def close(self) -> None:
        """End them all; what waits for an answer hears of it."""
        for link in self._links.values():
            link.close()
        self._links.clear()
