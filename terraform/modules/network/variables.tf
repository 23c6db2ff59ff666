variable "name" {
  description = "Prefix of every resource's name."
  type        = string
  nullable    = false
}

variable "vpc_cidr" {
  description = "Network of the VPC."
  type        = string
  nullable    = false
}

variable "zones" {
  description = "Number of availability zones."
  type        = number
  nullable    = false
}
