# Who may talk to whom: nodes among themselves (Ray, controller), clients to the Kafka and HTTP ports and to nothing else.

resource "aws_security_group" "cluster" {
  name_prefix = "${var.name}-cluster-"
  description = "Between the nodes of the appliance: Ray, controller, brokers"
  vpc_id      = var.vpc_id

  tags = { Name = "${var.name}-cluster" }

  lifecycle {
    create_before_destroy = true
  }
}

# Whoever reaches Ray's ports can run code, so they are open inside this group only.
resource "aws_vpc_security_group_ingress_rule" "cluster" {
  security_group_id            = aws_security_group.cluster.id
  referenced_security_group_id = aws_security_group.cluster.id
  ip_protocol                  = "tcp"
  from_port                    = 0
  to_port                      = 65535
}

resource "aws_vpc_security_group_egress_rule" "cluster" {
  security_group_id = aws_security_group.cluster.id
  description       = "Object store, package registry, AWS APIs"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
}

resource "aws_security_group" "kafka" {
  name_prefix = "${var.name}-kafka-"
  description = "Kafka clients to brokers"
  vpc_id      = var.vpc_id

  tags = { Name = "${var.name}-kafka" }

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_ingress_rule" "kafka" {
  for_each = toset(var.allowed_cidrs)

  security_group_id = aws_security_group.kafka.id
  description       = "Kafka protocol from ${each.value}"
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = var.kafka_ports.from
  to_port           = var.kafka_ports.to
}

resource "aws_security_group" "http" {
  name_prefix = "${var.name}-http-"
  description = "HTTP clients to the ingest gateway, and its load balancer to the gateway"
  vpc_id      = var.vpc_id

  tags = { Name = "${var.name}-http" }

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_vpc_security_group_ingress_rule" "http" {
  for_each = toset(var.allowed_cidrs)

  security_group_id = aws_security_group.http.id
  description       = "HTTP ingest from ${each.value}"
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = var.http_port
  to_port           = var.http_port
}

# From the load balancer, which is in this group too, to the gateway.
resource "aws_vpc_security_group_ingress_rule" "http_balancer" {
  security_group_id            = aws_security_group.http.id
  referenced_security_group_id = aws_security_group.http.id
  ip_protocol                  = "tcp"
  from_port                    = var.http_port
  to_port                      = var.http_port
}

resource "aws_vpc_security_group_egress_rule" "http_balancer" {
  security_group_id            = aws_security_group.http.id
  referenced_security_group_id = aws_security_group.http.id
  ip_protocol                  = "tcp"
  from_port                    = var.http_port
  to_port                      = var.http_port
}
