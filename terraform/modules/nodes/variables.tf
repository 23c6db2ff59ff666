variable "name" {
  description = "Prefix of every resource's name."
  type        = string
  nullable    = false
}

variable "region" {
  description = "AWS region, for the tools on the nodes."
  type        = string
  nullable    = false
}

variable "subnet_ids" {
  description = "Subnets over which the nodes are spread in turn."
  type        = list(string)
  nullable    = false
}

variable "first_host_number" {
  description = "Host number of the head node within its subnet; the brokers take the numbers after it."
  type        = number
  nullable    = false
}

variable "broker_nodes" {
  description = "Number of broker nodes."
  type        = number
  nullable    = false
}

variable "brokers_per_node" {
  description = "Brokers on each node."
  type        = number
  nullable    = false
}

variable "broker_instance_type" {
  description = "Instance type of the broker nodes."
  type        = string
  nullable    = false
}

variable "head_instance_type" {
  description = "Instance type of the head node."
  type        = string
  nullable    = false
}

variable "volume" {
  description = "Data volume of each broker node."
  type        = object({ size = number, iops = number, throughput = number })
  nullable    = false
}

variable "kms_key_arn" {
  description = "KMS key of the volumes, or null for AWS's own."
  type        = string
  default     = null
}

variable "head_profile" {
  description = "Instance profile of the head node."
  type        = string
  nullable    = false
}

variable "broker_profile" {
  description = "Instance profile of the broker nodes."
  type        = string
  nullable    = false
}

variable "head_security_group_ids" {
  description = "Security groups of the head node."
  type        = list(string)
  nullable    = false
}

variable "broker_security_group_ids" {
  description = "Security groups of the broker nodes."
  type        = list(string)
  nullable    = false
}

variable "bucket" {
  description = "Bucket with the installation files."
  type        = string
  nullable    = false
}

variable "object_store" {
  description = "URL of the object store."
  type        = string
  nullable    = false
}

variable "wheel_key" {
  description = "Key of the wheel in the bucket."
  type        = string
  nullable    = false
}

variable "lock_key" {
  description = "Key of the lock file in the bucket."
  type        = string
  nullable    = false
}

variable "secret_arn" {
  description = "Secret with the Ray token."
  type        = string
  nullable    = false
}

variable "kafka_port" {
  description = "Port of the first broker of a node."
  type        = number
  nullable    = false
}

variable "http_port" {
  description = "Port of the HTTP gateway."
  type        = number
  nullable    = false
}

variable "properties" {
  description = "Entries of the configuration file."
  type        = map(string)
  nullable    = false
}
