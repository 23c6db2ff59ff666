"""From sockets to handlers and back: listener, connections with their own output queue, dispatch, and Kafka's APIs."""
