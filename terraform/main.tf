# A whole appliance: network, bucket, roles, one head node and the dedicated broker nodes.

module "network" {
  source = "./modules/network"
  count  = var.existing_network == null ? 1 : 0

  name     = var.name
  vpc_cidr = var.vpc_cidr
  zones    = var.zones
}

module "tier_bucket" {
  source = "./modules/tier_bucket"

  name            = var.name
  bucket_name     = var.bucket_name
  force_destroy   = var.bucket_force_destroy
  kms_key_arn     = var.kms_key_arn
  noncurrent_days = var.noncurrent_days
}

module "security" {
  source = "./modules/security"

  name          = var.name
  vpc_id        = local.vpc_id
  allowed_cidrs = var.allowed_cidrs
  kafka_ports   = { from = local.kafka_port, to = local.kafka_port + var.brokers_per_node - 1 }
  http_port     = local.http_port
}

# The token of the Ray cluster. Terraform never sees it: the head node makes it at its first start and puts it here.
resource "aws_secretsmanager_secret" "ray_token" {
  name_prefix             = "${var.name}-ray-token-"
  description             = "Token that every process of the Ray cluster shows; made by the head node at its first start"
  kms_key_id              = var.kms_key_arn
  recovery_window_in_days = 7
}

module "iam" {
  source = "./modules/iam"

  name        = var.name
  bucket_arn  = module.tier_bucket.arn
  tier_prefix = local.tier_prefix
  dist_prefix = local.dist_prefix
  secret_arn  = aws_secretsmanager_secret.ray_token.arn
  kms_key_arn = var.kms_key_arn
}

resource "aws_s3_object" "wheel" {
  bucket      = module.tier_bucket.id
  key         = "${local.dist_prefix}/${basename(var.wheel_path)}"
  source      = var.wheel_path
  source_hash = filemd5(var.wheel_path)
}

resource "aws_s3_object" "requirements" {
  bucket      = module.tier_bucket.id
  key         = "${local.dist_prefix}/requirements.lock"
  source      = var.requirements_path
  source_hash = filemd5(var.requirements_path)
}

module "nodes" {
  source = "./modules/nodes"

  name              = var.name
  region            = var.region
  subnet_ids        = local.subnet_ids
  first_host_number = var.first_host_number
  broker_nodes      = var.broker_nodes
  brokers_per_node  = var.brokers_per_node

  broker_instance_type = var.broker_instance_type
  head_instance_type   = var.head_instance_type
  volume               = var.volume
  kms_key_arn          = var.kms_key_arn

  head_profile              = module.iam.head_profile
  broker_profile            = module.iam.broker_profile
  head_security_group_ids   = [module.security.cluster_group_id, module.security.http_group_id]
  broker_security_group_ids = [module.security.cluster_group_id, module.security.kafka_group_id]

  bucket       = module.tier_bucket.id
  object_store = "s3://${module.tier_bucket.id}/${local.tier_prefix}"
  wheel_key    = aws_s3_object.wheel.key
  lock_key     = aws_s3_object.requirements.key
  secret_arn   = aws_secretsmanager_secret.ray_token.arn
  kafka_port   = local.kafka_port
  http_port    = local.http_port
  properties   = var.properties
}

module "http" {
  source = "./modules/http"

  name               = var.name
  vpc_id             = local.vpc_id
  subnet_ids         = local.subnet_ids
  http_port          = local.http_port
  security_group_ids = [module.security.http_group_id]
  target_instance_id = module.nodes.head_instance_id
}
