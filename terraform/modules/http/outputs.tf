output "dns_name" {
  description = "Name of the load balancer."
  value       = aws_lb.this.dns_name
}
