locals {
  tags = merge({ Appliance = var.name }, var.tags)

  kafka_port = 9092
  http_port  = 8082

  vpc_id     = var.existing_network == null ? module.network[0].vpc_id : var.existing_network.vpc_id
  subnet_ids = var.existing_network == null ? module.network[0].private_subnet_ids : var.existing_network.subnet_ids

  # Everything of the cluster lies below one prefix; what the nodes install lies beside it, out of their write permission.
  tier_prefix = "cluster"
  dist_prefix = "dist"
}
