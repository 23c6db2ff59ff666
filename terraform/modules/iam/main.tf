# Least privilege: the tier's prefix for reading and writing, the installation files for reading, one secret.

data "aws_iam_policy_document" "assume" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ec2.amazonaws.com"]
    }
  }
}

data "aws_iam_policy_document" "node" {
  statement {
    sid       = "TierObjects"
    actions   = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"]
    resources = ["${var.bucket_arn}/${var.tier_prefix}/*"]
  }

  statement {
    sid       = "TierList"
    actions   = ["s3:ListBucket"]
    resources = [var.bucket_arn]

    condition {
      test     = "StringLike"
      variable = "s3:prefix"
      values   = ["${var.tier_prefix}/*"]
    }
  }

  statement {
    sid       = "Install"
    actions   = ["s3:GetObject"]
    resources = ["${var.bucket_arn}/${var.dist_prefix}/*"]
  }

  statement {
    sid       = "ReadRayToken"
    actions   = ["secretsmanager:GetSecretValue"]
    resources = [var.secret_arn]
  }

  dynamic "statement" {
    for_each = var.kms_key_arn == null ? [] : [var.kms_key_arn]

    content {
      sid       = "TierKey"
      actions   = ["kms:Decrypt", "kms:GenerateDataKey"]
      resources = [statement.value]
    }
  }
}

data "aws_iam_policy_document" "head" {
  source_policy_documents = [data.aws_iam_policy_document.node.json]

  statement {
    sid       = "MakeRayToken"
    actions   = ["secretsmanager:PutSecretValue"]
    resources = [var.secret_arn]
  }
}

resource "aws_iam_role" "head" {
  name_prefix        = "${var.name}-head-"
  assume_role_policy = data.aws_iam_policy_document.assume.json
}

resource "aws_iam_role_policy" "head" {
  name_prefix = "${var.name}-head-"
  role        = aws_iam_role.head.id
  policy      = data.aws_iam_policy_document.head.json
}

resource "aws_iam_instance_profile" "head" {
  name_prefix = "${var.name}-head-"
  role        = aws_iam_role.head.name
}

resource "aws_iam_role" "broker" {
  name_prefix        = "${var.name}-broker-"
  assume_role_policy = data.aws_iam_policy_document.assume.json
}

resource "aws_iam_role_policy" "broker" {
  name_prefix = "${var.name}-broker-"
  role        = aws_iam_role.broker.id
  policy      = data.aws_iam_policy_document.node.json
}

resource "aws_iam_instance_profile" "broker" {
  name_prefix = "${var.name}-broker-"
  role        = aws_iam_role.broker.name
}
