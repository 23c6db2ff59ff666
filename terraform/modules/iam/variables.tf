variable "name" {
  description = "Prefix of every resource's name."
  type        = string
  nullable    = false
}

variable "bucket_arn" {
  description = "The tier's bucket."
  type        = string
  nullable    = false
}

variable "tier_prefix" {
  description = "Prefix of the cluster's objects."
  type        = string
  nullable    = false
}

variable "dist_prefix" {
  description = "Prefix of what the nodes install."
  type        = string
  nullable    = false
}

variable "secret_arn" {
  description = "Secret with the Ray token."
  type        = string
  nullable    = false
}

variable "kms_key_arn" {
  description = "KMS key, or null."
  type        = string
  default     = null
}
