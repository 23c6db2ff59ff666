locals {
  bootstrap = flatten([
    for name in sort(keys(local.brokers)) : [
      for index in range(var.brokers_per_node) : "${local.brokers[name].private_ip}:${var.kafka_port + index}"
    ]
  ])
}

output "bootstrap_brokers" {
  description = "host:port of every broker."
  value       = join(",", local.bootstrap)
}

output "head_instance_id" {
  description = "The head node."
  value       = aws_instance.head.id
}

output "broker_instance_ids" {
  description = "The broker nodes by name."
  value       = { for name, instance in aws_instance.broker : name => instance.id }
}
