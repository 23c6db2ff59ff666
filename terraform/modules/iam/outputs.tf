output "head_profile" {
  description = "Instance profile of the head node."
  value       = aws_iam_instance_profile.head.name
  depends_on  = [aws_iam_role_policy.head]
}

output "broker_profile" {
  description = "Instance profile of the broker nodes."
  value       = aws_iam_instance_profile.broker.name
  depends_on  = [aws_iam_role_policy.broker]
}
