"""The root module, applied by Terraform against moto's server: init, apply, a plan without changes, destroy."""

from __future__ import annotations

import base64
import gzip
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.support.moto_server import MotoServer
from tests.support.terraform import plugin_dir, terraform_or_skip

ROOT = Path(__file__).resolve().parents[2] / "terraform"
REGION = "eu-central-1"

# moto evaluates bucket policies without their conditions, so "deny without TLS" would deny everything.
# The policy itself is looked at below, in the plan of the module as it is.
POLICY_WITHOUT_CONDITION = """
data "aws_iam_policy_document" "this" {
  statement {
    effect    = "Deny"
    actions   = ["s3:PutBucketNotification"]
    resources = [aws_s3_bucket.this.arn]

    principals {
      type        = "*"
      identifiers = ["*"]
    }
  }
}
"""
# moto keeps the security groups of an instance on its network interface only (where they are looked at below) and shows
# none on the instance, so the plan would set them again for ever.
GROUPS_IGNORED = """
resource "aws_instance" "head" {
  lifecycle {
    ignore_changes = [ami, vpc_security_group_ids]
  }
}

resource "aws_instance" "broker" {
  lifecycle {
    ignore_changes = [ami, vpc_security_group_ids]
  }
}
"""
PATH_STYLE = 'provider "aws" {\n  s3_use_path_style = true\n}\n'

pytestmark = [pytest.mark.terraform, pytest.mark.timeout(600)]


@dataclass
class Workspace:
    folder: Path
    environment: dict[str, str]
    endpoint: str

    def run(self, *arguments: str, expect: int = 0) -> str:
        done = subprocess.run(
            [terraform_or_skip(), *arguments, "-no-color"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == expect, (
            f"terraform {arguments[0]} ended with {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        )
        return done.stdout

    def client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )


def variables(**more: str) -> list[str]:
    values = {
        "region": REGION,
        "allowed_cidrs": '["10.20.0.0/16"]',
        "wheel_path": "tests/fixtures/appliance-0.0.0-py3-none-any.whl",
        "requirements_path": "tests/fixtures/requirements.lock",
        "bucket_force_destroy": "true",
        "broker_nodes": "2",
        "zones": "2",
        **more,
    }
    return [f"-var={name}={value}" for name, value in values.items()]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    terraform_or_skip()
    folder = tmp_path_factory.mktemp("terraform") / "root"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*"))
    (folder / "provider_override.tf").write_text(PATH_STYLE)
    (folder / "modules/tier_bucket/policy_override.tf").write_text(POLICY_WITHOUT_CONDITION)
    (folder / "modules/nodes/main_override.tf").write_text(GROUPS_IGNORED)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TF_"))}
    with MotoServer() as server:
        workspace = Workspace(folder, environment | server.environment, server.endpoint_url)
        workspace.run("init", "-input=false", f"-plugin-dir={plugin_dir()}")
        yield workspace


def test_apply_plan_without_changes_and_destroy(workspace: Workspace) -> None:
    workspace.run("apply", "-auto-approve", "-input=false", *variables())
    outputs = {name: row["value"] for name, row in json.loads(workspace.run("output", "-json")).items()}
    check_outputs(outputs)
    check_bucket(workspace, outputs)
    check_nodes(workspace, outputs)
    check_security_groups(workspace, outputs)
    check_roles(workspace)

    # 0 says "no changes"; 2 would say that something drifts at once.
    workspace.run("plan", "-detailed-exitcode", "-input=false", *variables(), expect=0)

    workspace.run("destroy", "-auto-approve", "-input=false", *variables())
    assert workspace.client("s3").list_buckets()["Buckets"] == []
    states = [
        instance["State"]["Name"]
        for reservation in workspace.client("ec2").describe_instances()["Reservations"]
        for instance in reservation["Instances"]
    ]
    assert set(states) == {"terminated"}


def check_outputs(outputs: dict[str, Any]) -> None:
    assert outputs["bootstrap_brokers"] == "10.60.0.11:9092,10.60.16.12:9092"
    assert outputs["http_endpoint"].startswith("http://") and outputs["http_endpoint"].endswith(":8082")
    assert outputs["object_store"] == f"s3://{outputs['tier_bucket']}/cluster"


def check_bucket(workspace: Workspace, outputs: dict[str, Any]) -> None:
    s3, bucket = workspace.client("s3"), outputs["tier_bucket"]
    rules = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    assert rules[0]["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    assert all(s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"].values())
    lifecycle = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"][0]
    assert lifecycle["NoncurrentVersionExpiration"]["NoncurrentDays"] == 7
    assert lifecycle["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"] == 1
    # A rule that expires current objects would delete data that the manifests name.
    assert "Days" not in lifecycle.get("Expiration", {})
    names = {row["Key"] for row in s3.list_objects_v2(Bucket=bucket)["Contents"]}
    assert names == {"dist/appliance-0.0.0-py3-none-any.whl", "dist/requirements.lock"}


def check_nodes(workspace: Workspace, outputs: dict[str, Any]) -> None:
    ec2 = workspace.client("ec2")
    nodes = {
        next(tag["Value"] for tag in instance["Tags"] if tag["Key"] == "Name"): instance
        for reservation in ec2.describe_instances()["Reservations"]
        for instance in reservation["Instances"]
    }
    assert set(nodes) == {"appliance-head", "appliance-broker-node-01", "appliance-broker-node-02"}
    assert all(node["MetadataOptions"]["HttpTokens"] == "required" for node in nodes.values())
    assert nodes["appliance-broker-node-01"]["SubnetId"] != nodes["appliance-broker-node-02"]["SubnetId"]
    groups = outputs["security_group_ids"]
    for name, node in nodes.items():
        given = {group["GroupId"] for interface in node["NetworkInterfaces"] for group in interface["Groups"]}
        assert given == {groups["cluster"], groups["http" if name == "appliance-head" else "kafka"]}
    volumes = [volume for volume in ec2.describe_volumes()["Volumes"] if volume["Size"] == 200]
    assert len(volumes) == 2
    assert all(volume["Encrypted"] and volume["Attachments"] for volume in volumes)

    head = user_data(ec2, nodes["appliance-head"]["InstanceId"])
    assert "ray start --block --disable-usage-stats --head" in head
    assert f"--object-store {outputs['object_store']}" in head
    assert "put-secret-value" in head
    assert "RAY_gcs_storage=rocksdb" in head
    broker = user_data(ec2, nodes["appliance-broker-node-02"]["InstanceId"])
    assert "--address=10.60.0.10:6379" in broker
    assert "--labels=appliance-node=broker-node-02" in broker
    assert '--resources={"broker_slot":1}' in broker
    assert "put-secret-value" not in broker
    assert "RAY_gcs_storage" not in broker
    for script in (head, broker):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def user_data(ec2: Any, instance_id: str) -> str:
    answer = ec2.describe_instance_attribute(InstanceId=instance_id, Attribute="userData")
    return gzip.decompress(base64.b64decode(answer["UserData"]["Value"])).decode()


def check_security_groups(workspace: Workspace, outputs: dict[str, Any]) -> None:
    groups = {
        group["GroupId"]: group["IpPermissions"]
        for group in workspace.client("ec2").describe_security_groups()["SecurityGroups"]
    }
    cluster = groups[outputs["security_group_ids"]["cluster"]]
    # Ray's ports: to nobody but the nodes themselves.
    assert [pair["GroupId"] for rule in cluster for pair in rule["UserIdGroupPairs"]] == [
        outputs["security_group_ids"]["cluster"]
    ]
    assert [block for rule in cluster for block in rule["IpRanges"]] == []
    kafka = groups[outputs["security_group_ids"]["kafka"]]
    assert [(rule["FromPort"], rule["ToPort"], block["CidrIp"]) for rule in kafka for block in rule["IpRanges"]] == [
        (9092, 9092, "10.20.0.0/16")
    ]
    everything = [block["CidrIp"] for rules in groups.values() for rule in rules for block in rule["IpRanges"]]
    assert "0.0.0.0/0" not in everything


def check_roles(workspace: Workspace) -> None:
    iam = workspace.client("iam")
    documents = {}
    for role in iam.list_roles()["Roles"]:
        for name in iam.list_role_policies(RoleName=role["RoleName"])["PolicyNames"]:
            document = iam.get_role_policy(RoleName=role["RoleName"], PolicyName=name)["PolicyDocument"]
            documents["head" if "-head-" in role["RoleName"] else "broker"] = document
    actions = {
        role: {action for row in document["Statement"] for action in listed(row["Action"])}
        for role, document in documents.items()
    }
    common = {"s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket", "secretsmanager:GetSecretValue"}
    assert actions == {"broker": common, "head": common | {"secretsmanager:PutSecretValue"}}
    resources = [
        resource
        for document in documents.values()
        for row in document["Statement"]
        for resource in listed(row["Resource"])
    ]
    assert "*" not in resources
    writable = [
        resource
        for document in documents.values()
        for row in document["Statement"]
        if "s3:PutObject" in listed(row["Action"])
        for resource in listed(row["Resource"])
    ]
    assert all(resource.endswith("/cluster/*") for resource in writable)


def listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def test_the_bucket_refuses_requests_without_tls(workspace: Workspace) -> None:
    module = workspace.folder.parent / "bucket"
    shutil.copytree(ROOT / "modules/tier_bucket", module, ignore=shutil.ignore_patterns(".terraform*"))
    (module / "provider.tf").write_text(
        f'provider "aws" {{\n  region            = "{REGION}"\n  s3_use_path_style = true\n}}\n'
    )
    alone = Workspace(module, workspace.environment, workspace.endpoint)
    alone.run("init", "-input=false", f"-plugin-dir={plugin_dir()}")
    given = ["-var=name=other", "-var=force_destroy=true", "-var=noncurrent_days=7"]
    alone.run("apply", "-auto-approve", "-input=false", *given, "-target=aws_s3_bucket_policy.this")
    bucket = next(
        row["Name"] for row in alone.client("s3").list_buckets()["Buckets"] if row["Name"].startswith("other-")
    )
    policy = json.loads(alone.client("s3").get_bucket_policy(Bucket=bucket)["Policy"])
    statement = policy["Statement"][0]
    assert (statement["Effect"], statement["Action"], statement["Principal"]) == ("Deny", "s3:*", "*")
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    alone.run("destroy", "-auto-approve", "-input=false", *given)


def test_the_modules_own_tests_pass(workspace: Workspace) -> None:
    folder = workspace.folder.parent / "mocked"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*"))
    mocked = Workspace(folder, workspace.environment, workspace.endpoint)
    mocked.run("init", "-input=false", f"-plugin-dir={plugin_dir()}")
    assert ", 0 failed" in mocked.run("test")


def test_the_files_are_formatted_and_the_examples_are_valid(workspace: Workspace) -> None:
    workspace.run("fmt", "-check", "-recursive", str(ROOT))
    # The examples name the wheel and the lock file where `make wheel` puts them, beside the terraform folder.
    for name in ("dist/appliance-0.1.0-py3-none-any.whl", "requirements/node.lock"):
        (workspace.folder.parent / name).parent.mkdir()
        (workspace.folder.parent / name).touch()
    for example in sorted((ROOT / "examples").iterdir()):
        folder = workspace.folder.parent / f"examples-{example.name}"
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*"))
        there = Workspace(folder / "examples" / example.name, workspace.environment, workspace.endpoint)
        there.run("init", "-input=false", "-backend=false", f"-plugin-dir={plugin_dir()}")
        there.run("validate")
