output "bootstrap_brokers" {
  description = "host:port of every broker, as Kafka clients take them."
  value       = module.nodes.bootstrap_brokers
}

output "http_endpoint" {
  description = "Address of the HTTP ingest gateway."
  value       = "http://${module.http.dns_name}:${local.http_port}"
}

output "tier_bucket" {
  description = "Bucket that holds the cluster's metadata and every tiered segment."
  value       = module.tier_bucket.id
}

output "object_store" {
  description = "What `appliance tier verify` and Spark jobs take as the object store."
  value       = "s3://${module.tier_bucket.id}/${local.tier_prefix}"
}

output "ray_token_secret_arn" {
  description = "Secret that holds the Ray cluster's token."
  value       = aws_secretsmanager_secret.ray_token.arn
}

output "security_group_ids" {
  description = "Security groups: cluster (between the nodes), kafka and http (from allowed_cidrs)."
  value = {
    cluster = module.security.cluster_group_id
    kafka   = module.security.kafka_group_id
    http    = module.security.http_group_id
  }
}

output "client_properties" {
  description = "Ready to paste into a Kafka client's properties file."
  value       = "bootstrap.servers=${module.nodes.bootstrap_brokers}\nsecurity.protocol=PLAINTEXT\n"
}
