#!/bin/sh
# Install a checkout of Respool into an environment of its own: install.sh CHECKOUT TARGET
# The steps of the image, kept apart so that a test can run them without containers.
set -eu
checkout=$1
target=$2
python=${PYTHON:-python3}

"$python" -m venv "$target"
pip() { "$target/bin/python" -m pip --disable-pip-version-check --no-cache-dir "$@"; }

# Locked: the same versions, with the hashes that were reviewed.
pip install --quiet --require-hashes -r "$checkout/requirements/image.txt"
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
"$python" -m venv "$build/venv"
"$build/venv/bin/python" -m pip --disable-pip-version-check install --quiet hatchling
"$build/venv/bin/python" -m pip --disable-pip-version-check wheel --quiet --no-deps --no-build-isolation \
  --wheel-dir "$build" "$checkout"
pip install --quiet --no-deps "$build"/respool-*.whl
install -D -m 0644 "$checkout/deploy/image/probe.py" "$target/share/respool/probe.py"
# Compiled once here: the files belong to root, so a broker could not keep bytecode.
"$target/bin/python" -m compileall -q "$target/lib" || true
"$target/bin/respool" --version
