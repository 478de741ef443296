#!/usr/bin/env bash
# Run a command on a machine that has Chromium, for the tests of pages:
#
#     tests/chromium.sh python -m pytest tests/pages
#
# Without Chromium, root installs Debian's package. If that fails, the command runs without it, and the tests that need it are
# skipped with that reason.
set -euo pipefail

if ! command -v chromium >/dev/null && [ -z "${TIRJUDGE_TEST_CHROMIUM:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; } >/dev/null 2>&1 || true
fi
if ! command -v chromium >/dev/null && [ -z "${TIRJUDGE_TEST_CHROMIUM:-}" ]; then
    echo "tests/chromium.sh: Chromium is not installed and cannot be installed; its tests are skipped" >&2
fi
exec "$@"
