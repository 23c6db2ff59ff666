# What the module accepts and what it refuses, and what it would make; nothing is created.

mock_provider "aws" {
  mock_data "aws_availability_zones" {
    defaults = { names = ["eu-central-1a", "eu-central-1b", "eu-central-1c"] }
  }
  mock_data "aws_region" {
    defaults = { name = "eu-central-1" }
  }
  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }
  mock_data "aws_iam_policy_document" {
    defaults = { json = "{\"Version\":\"2012-10-17\",\"Statement\":[]}" }
  }
  mock_resource "aws_secretsmanager_secret" {
    defaults = { arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:ray-token" }
  }
  mock_resource "aws_s3_bucket" {
    defaults = { arn = "arn:aws:s3:::tier" }
  }
  mock_resource "aws_lb" {
    defaults = { arn = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:loadbalancer/net/http/0123456789abcdef" }
  }
  mock_resource "aws_lb_target_group" {
    defaults = { arn = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/http/0123456789abcdef" }
  }
  mock_data "aws_subnet" {
    defaults = { cidr_block = "10.60.0.0/20", availability_zone = "eu-central-1a" }
  }
}

variables {
  region            = "eu-central-1"
  allowed_cidrs     = ["10.20.0.0/16"]
  wheel_path        = "tests/fixtures/appliance-0.0.0-py3-none-any.whl"
  requirements_path = "tests/fixtures/requirements.lock"
}

run "the_whole_internet_is_refused" {
  command = plan
  variables {
    allowed_cidrs = ["0.0.0.0/0"]
  }
  expect_failures = [var.allowed_cidrs]
}

run "half_of_the_internet_is_refused" {
  command = plan
  variables {
    allowed_cidrs = ["10.0.0.0/8", "128.0.0.0/1"]
  }
  expect_failures = [var.allowed_cidrs]
}

run "an_empty_list_is_refused" {
  command = plan
  variables {
    allowed_cidrs = []
  }
  expect_failures = [var.allowed_cidrs]
}

run "a_missing_wheel_is_refused" {
  command = plan
  variables {
    wheel_path = "nowhere.whl"
  }
  expect_failures = [var.wheel_path]
}

run "a_property_with_a_line_break_is_refused" {
  command = plan
  variables {
    properties = { "log.segment.bytes" = "1\nsuper.users=User:me" }
  }
  expect_failures = [var.properties]
}

run "a_name_that_aws_would_refuse_is_refused" {
  command = plan
  variables {
    name = "Has_Capitals"
  }
  expect_failures = [var.name]
}

run "kafka_ports_are_open_to_the_allowed_networks_only" {
  command = plan
  variables {
    allowed_cidrs    = ["10.20.0.0/16", "192.168.7.0/24"]
    brokers_per_node = 2
  }
  assert {
    condition     = toset([for rule in module.security.client_rules : rule.cidr_ipv4]) == toset(["10.20.0.0/16", "192.168.7.0/24"])
    error_message = "a client rule names another network"
  }
  assert {
    condition     = toset([for rule in module.security.client_rules : "${rule.from_port}-${rule.to_port}"]) == toset(["9092-9093", "8082-8082"])
    error_message = "client rules open other ports than the brokers' and the gateway's"
  }
}

run "a_cluster_lists_every_broker" {
  command = apply
  variables {
    broker_nodes     = 2
    brokers_per_node = 2
  }
  assert {
    condition     = output.bootstrap_brokers == "10.60.0.11:9092,10.60.0.11:9093,10.60.0.12:9092,10.60.0.12:9093"
    error_message = "bootstrap_brokers is ${output.bootstrap_brokers}"
  }
  assert {
    condition     = output.object_store == "s3://${output.tier_bucket}/cluster"
    error_message = "the object store lies outside its bucket"
  }
}
