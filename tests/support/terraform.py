"""Where Terraform and its AWS provider are on this machine; tests that need them skip where they are absent."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

PROVIDER = Path("registry.terraform.io/hashicorp/aws")


def terraform_or_skip() -> str:
    """The path of the `terraform` program."""
    program = shutil.which("terraform")
    if program is None:
        pytest.skip("terraform is not installed")
    plugin_dir()
    return program


def plugin_dir() -> Path:
    """The folder with the AWS provider in Terraform's own layout: TF_PLUGIN_MIRROR, or one of the usual places."""
    named = os.environ.get("TF_PLUGIN_MIRROR")
    places = (
        [Path(named)]
        if named
        else [
            Path("/opt/tf-plugins"),
            Path("/usr/share/terraform/plugins"),
            Path("/usr/local/share/terraform/plugins"),
            Path.home() / ".terraform.d/plugins",
            Path.home() / ".local/share/terraform/plugins",
        ]
    )
    for place in places:
        if (place / PROVIDER).is_dir():
            return place
    pytest.skip("the AWS provider of Terraform is not in a local plugin folder; TF_PLUGIN_MIRROR may name one")
