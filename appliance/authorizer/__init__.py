"""Who may do what: access control lists by the rules of Apache Kafka's standard authorizer. Pure."""
