# Three broker nodes in a VPC that is there already, one private subnet per zone.

variable "vpc_id" {
  description = "The VPC."
  type        = string
}

variable "subnet_ids" {
  description = "One private subnet per zone, with a way out to the package registry and to S3."
  type        = list(string)
}

module "appliance" {
  source = "../.."

  name              = "ingest"
  region            = "eu-central-1"
  broker_nodes      = 3
  brokers_per_node  = 2
  existing_network  = { vpc_id = var.vpc_id, subnet_ids = var.subnet_ids }
  allowed_cidrs     = ["10.20.0.0/16", "10.21.0.0/16"]
  wheel_path        = "../../../dist/appliance-0.1.0-py3-none-any.whl"
  requirements_path = "../../../requirements/node.lock"

  volume     = { size = 500, throughput = 500 }
  properties = { "tiering.max.lag.ms" = "600000" }
}

output "client_properties" {
  value = module.appliance.client_properties
}
