variable "name" {
  description = "Name of the appliance; prefix of every resource."
  type        = string
  nullable    = false
  default     = "appliance"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,22}[a-z0-9]$", var.name))
    error_message = "name has 3 to 24 lower-case letters, digits and dashes, begins with a letter and does not end with a dash."
  }
}

variable "region" {
  description = "AWS region."
  type        = string
  nullable    = false
}

variable "allowed_cidrs" {
  description = "IPv4 networks whose clients may reach the Kafka and HTTP ports. There is no default: the listeners have no TLS and no authentication yet, so whoever is let in may read and write everything."
  type        = list(string)
  nullable    = false

  validation {
    condition     = length(var.allowed_cidrs) > 0
    error_message = "allowed_cidrs names at least one network."
  }
  validation {
    condition     = alltrue([for cidr in var.allowed_cidrs : can(cidrnetmask(cidr))])
    error_message = "Each entry of allowed_cidrs is an IPv4 network such as 10.20.0.0/16."
  }
  validation {
    condition     = alltrue([for cidr in var.allowed_cidrs : try(tonumber(split("/", cidr)[1]), 0) >= 8])
    error_message = "allowed_cidrs holds no network larger than a /8; 0.0.0.0/0 would open the appliance to the whole Internet."
  }
}

variable "wheel_path" {
  description = "Path of the appliance's wheel on this machine (`make wheel`). It is uploaded to the bucket, and the nodes install it from there."
  type        = string
  nullable    = false

  validation {
    condition     = can(regex("\\.whl$", var.wheel_path)) && fileexists(var.wheel_path)
    error_message = "wheel_path names an existing .whl file; build one with `make wheel`."
  }
}

variable "requirements_path" {
  description = "Path of the hashed lock file with everything the wheel needs (`requirements/node.lock`)."
  type        = string
  nullable    = false

  validation {
    condition     = fileexists(var.requirements_path)
    error_message = "requirements_path names an existing file; the repository has it as requirements/node.lock."
  }
}

variable "broker_nodes" {
  description = "Number of dedicated broker nodes; they are spread over the zones in turn."
  type        = number
  nullable    = false
  default     = 3

  validation {
    condition     = var.broker_nodes >= 1 && var.broker_nodes <= 100 && floor(var.broker_nodes) == var.broker_nodes
    error_message = "broker_nodes is a whole number from 1 to 100."
  }
}

variable "brokers_per_node" {
  description = "Brokers on each node: one per core that is to be used."
  type        = number
  nullable    = false
  default     = 1

  validation {
    condition     = var.brokers_per_node >= 1 && var.brokers_per_node <= 64 && floor(var.brokers_per_node) == var.brokers_per_node
    error_message = "brokers_per_node is a whole number from 1 to 64."
  }
}

variable "broker_instance_type" {
  description = "Instance type of the broker nodes."
  type        = string
  nullable    = false
  default     = "m7i.large"
}

variable "head_instance_type" {
  description = "Instance type of the head node (Ray's head, controller, HTTP gateway, connector worker)."
  type        = string
  nullable    = false
  default     = "m7i.large"
}

variable "volume" {
  description = "Data volume of each broker node: gp3, size in GiB, throughput in MiB/s."
  type = object({
    size       = optional(number, 200)
    iops       = optional(number, 3000)
    throughput = optional(number, 250)
  })
  nullable = false
  default  = {}

  validation {
    condition     = var.volume.size >= 20 && var.volume.size <= 16384
    error_message = "volume.size is 20 to 16384 GiB."
  }
  validation {
    condition     = var.volume.iops >= 3000 && var.volume.iops <= 16000 && var.volume.throughput >= 125 && var.volume.throughput <= 1000
    error_message = "volume.iops is 3000 to 16000 and volume.throughput 125 to 1000 MiB/s."
  }
}

variable "zones" {
  description = "Number of availability zones to spread over."
  type        = number
  nullable    = false
  default     = 3

  validation {
    condition     = contains([1, 2, 3], var.zones)
    error_message = "zones is 1, 2 or 3."
  }
}

variable "vpc_cidr" {
  description = "Network of the VPC that is made; not used with existing_network."
  type        = string
  nullable    = false
  default     = "10.60.0.0/16"

  validation {
    condition     = can(cidrsubnet(var.vpc_cidr, 6, 63))
    error_message = "vpc_cidr is an IPv4 network with room for 64 subnets, such as 10.60.0.0/16."
  }
}

variable "existing_network" {
  description = "Use a VPC that is there already: its id and one private subnet per zone, with a way out to the package registry and to S3."
  type = object({
    vpc_id     = string
    subnet_ids = list(string)
  })
  default = null

  validation {
    condition     = var.existing_network == null ? true : length(var.existing_network.subnet_ids) > 0
    error_message = "existing_network.subnet_ids names at least one subnet."
  }
}

variable "first_host_number" {
  description = "Private addresses are fixed: the head node takes this host number in the first subnet, the broker nodes the ones after it."
  type        = number
  nullable    = false
  default     = 10

  validation {
    condition     = var.first_host_number >= 4 && floor(var.first_host_number) == var.first_host_number
    error_message = "first_host_number is a whole number from 4: AWS keeps the first four addresses of a subnet."
  }
}

variable "bucket_name" {
  description = "Name of the tier's bucket; null makes one up from name and account."
  type        = string
  default     = null
}

variable "bucket_force_destroy" {
  description = "Let `terraform destroy` delete a bucket that still holds data. Everything ever ingested is in it."
  type        = bool
  nullable    = false
  default     = false
}

variable "noncurrent_days" {
  description = "Days for which deleted or replaced objects can be brought back."
  type        = number
  nullable    = false
  default     = 7

  validation {
    condition     = var.noncurrent_days >= 1
    error_message = "noncurrent_days is at least 1."
  }
}

variable "kms_key_arn" {
  description = "KMS key for bucket, volumes and secret; null uses S3-managed keys and AWS's own."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null ? true : can(regex("^arn:[^:]+:kms:", var.kms_key_arn))
    error_message = "kms_key_arn is the ARN of a KMS key."
  }
}

variable "properties" {
  description = "Entries of the appliance's configuration file, as in Kafka's server.properties."
  type        = map(string)
  nullable    = false
  default     = {}

  validation {
    condition     = alltrue([for key, value in var.properties : can(regex("^[a-z0-9.]+$", key)) && !can(regex("[\r\n]", value))])
    error_message = "Keys of properties hold lower-case letters, digits and dots; values hold no line breaks."
  }
}

variable "tags" {
  description = "Tags for every resource."
  type        = map(string)
  nullable    = false
  default     = {}
}
