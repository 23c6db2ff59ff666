#!/bin/sh
# Lock every requirement, with hashes, for all platforms at once: requirements/*.lock. They name no index, so that each
# machine uses its own.
#
#   core.lock    what a small install needs: no extras
#   dev.lock     all extras, tests and tools (what .venv is made of)
#   build.lock   what builds the project itself
#   node.lock    what a node of terraform/ runs: S3 and connectors, no Spark
#   tools.lock   uv, where it is not on PATH

set -eu
cd "$(dirname "$0")/.."
if command -v uv >/dev/null 2>&1; then uv=uv; else uv=.tools/bin/uv; fi
export UV_CUSTOM_COMPILE_COMMAND="make lock"

lock() {
    out=$1
    shift
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
        "$@" --output-file "requirements/$out"
}

lock dev.lock --all-extras pyproject.toml
lock core.lock --constraint requirements/dev.lock pyproject.toml
lock build.lock requirements/build.in
lock node.lock --extra s3 --extra connectors --constraint requirements/dev.lock pyproject.toml
lock tools.lock requirements/tools.in
