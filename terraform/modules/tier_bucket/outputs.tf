output "id" {
  description = "The bucket's name."
  value       = aws_s3_bucket.this.id
  # Nobody writes before encryption, the public access block and the policy are in place.
  depends_on = [
    aws_s3_bucket_ownership_controls.this,
    aws_s3_bucket_policy.this,
    aws_s3_bucket_public_access_block.this,
    aws_s3_bucket_server_side_encryption_configuration.this,
    aws_s3_bucket_versioning.this,
  ]
}

output "arn" {
  description = "The bucket's ARN."
  value       = aws_s3_bucket.this.arn
}
