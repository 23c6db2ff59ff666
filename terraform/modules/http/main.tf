# One address for HTTP ingest that stays when the node behind it is replaced.

resource "aws_lb" "this" {
  name               = "${var.name}-http"
  load_balancer_type = "network"
  internal           = true
  subnets            = var.subnet_ids
  security_groups    = var.security_group_ids

  enable_cross_zone_load_balancing = true
}

resource "aws_lb_target_group" "gateway" {
  name     = "${var.name}-http"
  port     = var.http_port
  protocol = "TCP"
  vpc_id   = var.vpc_id

  deregistration_delay = 30

  health_check {
    protocol            = "HTTP"
    path                = "/health"
    interval            = 10
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }
}

resource "aws_lb_target_group_attachment" "gateway" {
  target_group_arn = aws_lb_target_group.gateway.arn
  target_id        = var.target_instance_id
  port             = var.http_port
}

resource "aws_lb_listener" "http" {
  load_balancer_arn = aws_lb.this.arn
  port              = var.http_port
  protocol          = "TCP"

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.gateway.arn
  }
}
