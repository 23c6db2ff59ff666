#!/bin/sh
# Make .venv from the locked requirements, and install this project into it, editable. Changes nothing outside this
# folder (uv keeps its cache where it always does). Says one line and ends at once when nothing has changed.

set -eu
cd "$(dirname "$0")/.."
. tools/python.sh

export UV_PYTHON_DOWNLOADS=never UV_NO_PROGRESS=1 PIP_DISABLE_PIP_VERSION_CHECK=1

find_python
[ -n "$python" ] || { echo "no Python 3.11 to 3.13; see sh tools/needs.sh" >&2; exit 1; }

# What the environment is made of: its stamp tells whether it still is.
made_of=$(cat pyproject.toml requirements/dev.lock requirements/build.lock tools/setup.sh | cksum; "$python" -VV)
if [ -x .venv/bin/python ] && [ "$(cat .venv/.stamp 2>/dev/null)" = "$made_of" ]; then
    echo "set up: .venv is as requirements/dev.lock wants it"
    exit 0
fi

if command -v uv >/dev/null 2>&1; then
    uv=uv
else
    uv=.tools/bin/uv
    if ! [ -x "$uv" ]; then
        echo "installing uv into .tools"
        "$python" -m venv .tools
        .tools/bin/pip install --quiet --require-hashes -r requirements/tools.lock
    fi
fi

if ! [ -x .venv/bin/python ] || ! .venv/bin/python -c "" 2>/dev/null ||
    [ "$(.venv/bin/python -VV)" != "$("$python" -VV)" ]; then
    echo "making .venv with $("$python" --version)"
    "$uv" venv --quiet --clear --python "$("$python" -c 'import sys; print(sys.executable)')" .venv
fi
rm -f .venv/.stamp

echo "installing the locked requirements"
export VIRTUAL_ENV="$PWD/.venv"
"$uv" pip install --quiet --require-hashes -r requirements/dev.lock -r requirements/build.lock
"$uv" pip install --quiet --no-deps --no-build-isolation --no-index --editable .

printf '%s' "$made_of" >.venv/.stamp
echo "set up: .venv/bin/appliance"
