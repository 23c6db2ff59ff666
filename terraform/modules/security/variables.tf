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

variable "allowed_cidrs" {
  description = "Networks of the clients."
  type        = list(string)
  nullable    = false
}

variable "kafka_ports" {
  description = "Ports of the brokers of one node."
  type        = object({ from = number, to = number })
  nullable    = false
}

variable "http_port" {
  description = "Port of the HTTP gateway."
  type        = number
  nullable    = false
}
