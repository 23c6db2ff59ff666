output "vpc_id" {
  description = "The VPC."
  value       = aws_vpc.this.id
}

output "private_subnet_ids" {
  description = "One private subnet per zone."
  # The nodes need the way out at their first start, so nothing gets a subnet before the routes are there.
  value      = aws_subnet.private[*].id
  depends_on = [aws_route.private, aws_route_table_association.private, aws_vpc_endpoint.s3]
}
