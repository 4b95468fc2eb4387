#!/bin/sh
# Makes .venv from the lock. Run by `make setup`; needs python3 >= 3.11 with venv, and pip's usual access to packages.
set -eu
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "setup: $python is $("$python" --version 2>&1); Python 3.11 or newer is needed (set PYTHON=/path/to/python3.11)" >&2
    exit 2
}
echo "setup: making .venv (4.4 GB; a minute when packages are cached, several when not)"
echo "setup: 1 of 3: $("$python" --version 2>&1) in .venv"
[ -x .venv/bin/pip ] || "$python" -m venv .venv || {
    echo "setup: python -m venv failed; on Debian and Ubuntu install the package python3-venv" >&2
    exit 2
}
echo "setup: 2 of 3: uv, which installs packages (37 MB)"
.venv/bin/pip install --quiet --disable-pip-version-check "uv==0.13.8"

# uv does not read pip's configuration: hand it the parts that say where packages come from.
setting() { .venv/bin/pip config get "$1" 2>/dev/null || true; }
links="${PIP_FIND_LINKS:-$(setting global.find-links)}"
index="${PIP_INDEX_URL:-$(setting global.index-url)}"
cert="${PIP_CERT:-$(setting global.cert)}"
[ -z "$cert" ] || export SSL_CERT_FILE="$cert"
set -- --python .venv/bin/python --no-deps --compile-bytecode
[ -t 2 ] || set -- "$@" --quiet # uv shows its progress in a terminal only
[ -z "$index" ] || set -- "$@" --index-url "$index"
if [ -n "$links" ]; then
    for link in $links; do set -- "$@" --find-links "$link"; done
else
    set -- "$@" --torch-backend cpu
fi
echo "setup: 3 of 3: $(wc -l < requirements/cpu.lock) packages: download, unpack (3.6 GB), compile (0.7 GB)"
.venv/bin/uv pip install "$@" -r requirements/cpu.lock
.venv/bin/uv pip install --python .venv/bin/python --quiet --no-deps --no-build-isolation -e .
touch .venv/.ready
echo "setup: done; for the command tracker: source .venv/bin/activate"
