# One head node and the dedicated broker nodes. Addresses and data outlive the instances: a node that is replaced comes back
# under its own address, with its own volume, so its brokers find their data and clients find their brokers.

data "aws_ssm_parameter" "image" {
  name = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
}

data "aws_subnet" "node" {
  count = min(var.broker_nodes, length(var.subnet_ids))

  id = var.subnet_ids[count.index]
}

locals {
  head_ip = cidrhost(data.aws_subnet.node[0].cidr_block, var.first_host_number)

  brokers = {
    for index in range(var.broker_nodes) : format("broker-node-%02d", index + 1) => {
      subnet     = index % length(var.subnet_ids)
      private_ip = cidrhost(data.aws_subnet.node[index % length(var.subnet_ids)].cidr_block, var.first_host_number + 1 + index)
    }
  }

  install = {
    region     = var.region
    bucket     = var.bucket
    wheel_key  = var.wheel_key
    lock_key   = var.lock_key
    secret_arn = var.secret_arn
    head_ip    = local.head_ip
    ray_port   = 6379
  }
}

resource "aws_instance" "head" {
  ami                  = data.aws_ssm_parameter.image.insecure_value
  instance_type        = var.head_instance_type
  iam_instance_profile = var.head_profile
  user_data_base64 = base64gzip(templatefile("${path.module}/user_data.sh.tftpl", merge(local.install, {
    role             = "head"
    node_name        = "head"
    volume_id        = ""
    brokers_per_node = var.brokers_per_node
    brokers          = var.broker_nodes * var.brokers_per_node
    object_store     = var.object_store
    kafka_port       = var.kafka_port
    http_port        = var.http_port
    properties       = var.properties
  })))

  subnet_id              = var.subnet_ids[0]
  private_ip             = local.head_ip
  vpc_security_group_ids = var.head_security_group_ids

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  root_block_device {
    encrypted   = true
    kms_key_id  = var.kms_key_arn
    volume_type = "gp3"
    volume_size = 30
  }

  tags        = { Name = "${var.name}-head" }
  volume_tags = { Name = "${var.name}-head" }

  lifecycle {
    # A newer image must not replace a running node by the way.
    ignore_changes = [ami]
  }
}

resource "aws_ebs_volume" "broker" {
  for_each = local.brokers

  availability_zone = data.aws_subnet.node[each.value.subnet].availability_zone
  type              = "gp3"
  size              = var.volume.size
  iops              = var.volume.iops
  throughput        = var.volume.throughput
  encrypted         = true
  kms_key_id        = var.kms_key_arn

  tags = { Name = "${var.name}-${each.key}" }
}

resource "aws_instance" "broker" {
  for_each = local.brokers

  ami                  = data.aws_ssm_parameter.image.insecure_value
  instance_type        = var.broker_instance_type
  iam_instance_profile = var.broker_profile
  user_data_base64 = base64gzip(templatefile("${path.module}/user_data.sh.tftpl", merge(local.install, {
    role             = "broker"
    node_name        = each.key
    volume_id        = aws_ebs_volume.broker[each.key].id
    brokers_per_node = var.brokers_per_node
    brokers          = var.broker_nodes * var.brokers_per_node
    object_store     = var.object_store
    kafka_port       = var.kafka_port
    http_port        = var.http_port
    properties       = {}
  })))

  subnet_id              = var.subnet_ids[each.value.subnet]
  private_ip             = each.value.private_ip
  vpc_security_group_ids = var.broker_security_group_ids

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  root_block_device {
    encrypted   = true
    kms_key_id  = var.kms_key_arn
    volume_type = "gp3"
    volume_size = 20
  }

  tags = { Name = "${var.name}-${each.key}" }

  lifecycle {
    ignore_changes = [ami]
  }
}

resource "aws_volume_attachment" "broker" {
  for_each = local.brokers

  device_name = "/dev/sdf"
  volume_id   = aws_ebs_volume.broker[each.key].id
  instance_id = aws_instance.broker[each.key].id

  # A clean end of the brokers comes before the volume goes.
  stop_instance_before_detaching = true
}
