#!/usr/bin/env bash
# Run a command with a new PostgreSQL server, on loopback and in a temporary folder:
#
#     tests/postgres.sh python -m pytest tests/server/records
#
# Without a PostgreSQL installation, root installs Debian's package. If that fails, the command runs without a server, and the
# tests that need one are skipped with that reason.
set -euo pipefail

programs() {
    find /usr/lib/postgresql -maxdepth 3 -name initdb -printf '%h\n' 2>/dev/null | sort -V | tail -n 1
}

if [ -n "${TIRJUDGE_TEST_POSTGRES:-}" ]; then
    exec "$@"
fi
if [ -z "$(programs)" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    # Do not create Debian's default cluster, which the tests do not use.
    mkdir -p /etc/postgresql-common
    [ -e /etc/postgresql-common/createcluster.conf ] || echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql; } >/dev/null 2>&1 || true
fi
bin=$(programs)
if [ -z "$bin" ]; then
    echo "tests/postgres.sh: PostgreSQL is not installed and cannot be installed; its tests are skipped" >&2
    exec "$@"
fi

folder=$(mktemp -d "${TMPDIR:-/tmp}/tirjudge-postgres.XXXXXX")
as_owner=()
if [ "$(id -u)" = 0 ]; then
    # PostgreSQL refuses to run as root.
    owner=nobody
    id postgres >/dev/null 2>&1 && owner=postgres
    chown "$owner" "$folder"
    as_owner=(runuser -u "$owner" --)
fi
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')

stop() {
    (cd / && "${as_owner[@]}" "$bin/pg_ctl" stop --pgdata "$folder/data" --mode immediate --silent) || true
    rm -rf "$folder"
}
trap stop EXIT

(
    cd /
    "${as_owner[@]}" "$bin/initdb" --pgdata "$folder/data" --username tirjudge --auth trust --encoding UTF8 --no-sync >/dev/null
    "${as_owner[@]}" "$bin/pg_ctl" start --pgdata "$folder/data" --silent --wait --log "$folder/log" \
        --options "-c listen_addresses=127.0.0.1 -p $port -c unix_socket_directories=$folder"
)
export TIRJUDGE_TEST_POSTGRES="postgresql://tirjudge@127.0.0.1:$port/postgres"
"$@"
