variable "name" {
  description = "Prefix of every resource's name."
  type        = string
  nullable    = false
}

variable "vpc_id" {
  description = "The VPC."
  type        = string
  nullable    = false
}

variable "subnet_ids" {
  description = "Subnets of the load balancer."
  type        = list(string)
  nullable    = false
}

variable "http_port" {
  description = "Port of the gateway."
  type        = number
  nullable    = false
}

variable "security_group_ids" {
  description = "Groups of the load balancer."
  type        = list(string)
  nullable    = false
}

variable "target_instance_id" {
  description = "Node that runs the gateway."
  type        = string
  nullable    = false
}
