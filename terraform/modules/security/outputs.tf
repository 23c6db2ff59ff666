output "cluster_group_id" {
  description = "Group of all nodes."
  value       = aws_security_group.cluster.id
}

output "kafka_group_id" {
  description = "Group of the broker nodes."
  value       = aws_security_group.kafka.id
}

output "http_group_id" {
  description = "Group of the head node and the load balancer."
  value       = aws_security_group.http.id
}

output "client_rules" {
  description = "Every rule that lets clients in."
  value = [
    for rule in concat(values(aws_vpc_security_group_ingress_rule.kafka), values(aws_vpc_security_group_ingress_rule.http)) :
    { cidr_ipv4 = rule.cidr_ipv4, from_port = rule.from_port, to_port = rule.to_port }
  ]
}
