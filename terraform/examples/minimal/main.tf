# The smallest appliance that spreads over nothing: one broker node in one zone, for trying things out.

module "appliance" {
  source = "../.."

  name              = "try"
  region            = "eu-central-1"
  zones             = 1
  broker_nodes      = 1
  allowed_cidrs     = ["10.20.0.0/16"]
  wheel_path        = "../../../dist/appliance-0.1.0-py3-none-any.whl"
  requirements_path = "../../../requirements/node.lock"
}

output "bootstrap_brokers" {
  value = module.appliance.bootstrap_brokers
}

output "http_endpoint" {
  value = module.appliance.http_endpoint
}
