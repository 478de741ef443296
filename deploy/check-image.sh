#!/usr/bin/env bash
# Build the image, run it with the hardening of docs/deploy.md, and check that it judges:
#
#     deploy/check-image.sh
#
# Needs a Docker daemon with BuildKit. If no registry is reachable, the base image is made from Debian packages, which needs
# root and debootstrap. The image then has Debian's Python instead of that of the official image.
set -euo pipefail
cd "$(dirname "$0")/.."

base=$(sed -n 's/^ARG PYTHON_IMAGE=//p' Dockerfile)
image=${1:-tirjudge}
started=()
folder=$(mktemp -d "${TMPDIR:-/tmp}/tirjudge-image.XXXXXX")

stop() {
    [ ${#started[@]} = 0 ] || docker rm --force "${started[@]}" >/dev/null
    rm -rf --one-file-system "$folder"
}
trap stop EXIT

fail() {
    echo "check-image: $*" >&2
    exit 1
}

make_base() {
    local root=$folder/root
    debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv,python3-pip trixie "$root" >"$folder/log" ||
        fail "debootstrap could not make the base image: $(tail -n 1 "$folder/log")"
    # pip must trust the certificates of this machine, because a proxy may be between it and the package index.
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$root/etc/pip.conf"
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
    tar -C "$root" --exclude='./proc/*' --exclude='./sys/*' -cf - . | docker import - "$base" >/dev/null
}

# Start a container, hardened as in deploy/compose.yaml.
run() {
    local name=$1
    shift
    started+=("$name")
    docker run --detach --name "$name" --read-only --tmpfs /tmp --tmpfs /var/lib/tirjudge:uid=10001,gid=10001 \
        --cap-drop ALL --security-opt no-new-privileges "$@" >/dev/null
}

wait_until_healthy() {
    for _ in $(seq 90); do
        [ "$(docker inspect --format '{{.State.Health.Status}}' "$1")" = healthy ] && return
        sleep 2
    done
    docker logs "$1" >&2
    fail "$1 is not healthy after three minutes"
}

docker info >/dev/null || fail "cannot reach a Docker daemon"
docker image inspect "$base" >/dev/null 2>&1 || docker pull --quiet "$base" 2>/dev/null || make_base
DOCKER_BUILDKIT=1 docker build --network host --tag "$image" .

server=tirjudge-check-server-$$
sandbox=tirjudge-check-sandbox-$$
run "$server" --env TIRJUDGE_INSECURE_OPEN=1 "$image"
run "$sandbox" --env TIRJUDGE_PORT=8090 --env TIRJUDGE_INSECURE_OPEN=1 --security-opt seccomp=deploy/seccomp/sandbox.json "$image" \
    sandbox serve --host 0.0.0.0 --port 8090
wait_until_healthy "$server"
wait_until_healthy "$sandbox"

[ "$(docker exec "$server" id -u)" = 10001 ] || fail "the server does not run as user 10001"
docker exec "$server" sh -c '! ls -d /wheels /source /root/.cache/pip 2>/dev/null' || fail "the image contains build files"
docker exec --interactive "$server" python3 - <<'ASK' || fail "the server does not judge"
import json
import urllib.request

body = {
    "mode": "pairwise",
    "prompt": "Describe the sea in at least 3 sentences. Do not use any commas.",
    "responses": ["The sea is wide. It is blue. It moves.", "The sea is wide, blue and deep. It moves."],
}
request = urllib.request.Request("http://127.0.0.1:8400/v1/judge", json.dumps(body).encode(), {"content-type": "application/json"})
judgment = json.load(urllib.request.urlopen(request, timeout=120))
outcomes = [turn["outcome"] for rollout in judgment["rollouts"] for turn in rollout["turns"]]
print("the server judges:", judgment["verdict"]["status"], "programs:", outcomes)
assert judgment["verdict"]["status"] == "decided" and "ok" in outcomes
ASK
docker exec "$sandbox" tirjudge sandbox doctor | sed -n '/^attacks/,$p' | tee "$folder/attacks"
grep -q '^level: landlock' "$folder/attacks" || fail "the sandbox is not at the level landlock"
! grep -q 'FAILS\|GOT THROUGH' "$folder/attacks" || fail "an attack got through"

if docker info --format '{{json .Runtimes}}' | grep -q '"runsc"'; then
    inside_gvisor() {
        docker run --rm --interactive --runtime runsc --network none --read-only --tmpfs /tmp --cap-drop ALL \
            --security-opt no-new-privileges "$@"
    }
    inside_gvisor --user 0:0 --cap-add SYS_ADMIN --cap-add SYS_CHROOT --cap-add SETUID --cap-add SETGID --cap-add KILL \
        "$image" sandbox doctor | sed -n '/^attacks/,$p' | tee "$folder/attacks"
    grep -q '^level: gvisor' "$folder/attacks" || fail "the sandbox level as root in a gVisor container is not gvisor"
    ! grep -q 'FAILS\|GOT THROUGH' "$folder/attacks" || fail "an attack got through in a gVisor container"
    echo 'print(6 * 7)' | inside_gvisor --entrypoint sh "$image" \
        -c 'cat >/tmp/program.py && tirjudge sandbox run /tmp/program.py --allow-unsafe 2>/dev/null' | grep -qx 42 ||
        fail "a program fails for an ordinary user in a gVisor container"
fi
echo "$image: $(docker image inspect --format '{{.Size}}' "$image" | awk '{printf "%.0f MB", $1 / 1e6}'), all checks passed"
