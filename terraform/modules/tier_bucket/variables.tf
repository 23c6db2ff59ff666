variable "name" {
  description = "Prefix of the bucket's name."
  type        = string
  nullable    = false
}

variable "bucket_name" {
  description = "The bucket's whole name, or null."
  type        = string
  default     = null
}

variable "force_destroy" {
  description = "Let destroy delete a bucket that is not empty."
  type        = bool
  nullable    = false
}

variable "kms_key_arn" {
  description = "KMS key, or null for S3-managed keys."
  type        = string
  default     = null
}

variable "noncurrent_days" {
  description = "Days for which replaced or deleted objects are kept."
  type        = number
  nullable    = false
}
