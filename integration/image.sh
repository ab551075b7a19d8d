#!/bin/sh
# Makes a Docker image of Redis from this machine's own redis-server, or from the
# server in REDLOCK_TEST_SERVER, for places that reach no image registry: the
# binaries, the libraries that ldd names, and nothing else.
#
#   integration/image.sh [name]        default name: redquorum/redis:local
#
# The last line of output is the image's name, so that
#   export REDLOCK_TEST_IMAGE="$(integration/image.sh | tail -n 1)"
# works. Running it again with the same binaries changes nothing.
set -eu

name=${1:-redquorum/redis:local}

fail() {
    echo "image.sh: $*" >&2
    exit 1
}

[ "$(uname -s)" = Linux ] ||
    fail "a container needs a Linux redis-server; on $(uname -s) use an official image (docker pull redis)"
for tool in docker ldd tar sha256sum; do
    command -v "$tool" >/dev/null || fail "$tool not found on PATH; please install it"
done
server=$(command -v "${REDLOCK_TEST_SERVER:-redis-server}") ||
    fail "${REDLOCK_TEST_SERVER:-redis-server} not found on PATH; please install it (for example: apt-get install redis-server)"
docker version --format '{{.Server.Version}}' >/dev/null ||
    fail "the Docker engine does not answer; is it running, and may this user reach it?"

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
trap 'exit 1' HUP INT TERM

# Every file goes to the path that the loader will look it up by. cp -L: on
# many systems these paths are symlinks into directories not copied.
put() {
    [ -e "$root$1" ] && return
    mkdir -p "$root$(dirname "$1")"
    cp -L "$1" "$root$1"
}

install_binary() {
    mkdir -p "$root/usr/local/bin"
    cp -L "$1" "$root/usr/local/bin/$2"
    # A static binary has no libraries: ldd then fails, which is fine here,
    # since the finished image is tried out below.
    for lib in $(ldd "$1" 2>/dev/null | awk '{ for (i = 1; i <= NF; i++) if ($i ~ /^\//) print $i }'); do
        put "$lib"
    done
}

# 0755 for the root itself: mktemp makes it 0700, and an image with such a root
# directory can be entered by its owner only.
chmod 755 "$root"
mkdir -p "$root/data" "$root/tmp" "$root/etc"
chmod 1777 "$root/tmp"
echo 'root:x:0:0:root:/data:/sbin/nologin' >"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"

install_binary "$server" redis-server
# redis-cli serves the health checks of docker-compose.yml only.
if cli=$(command -v redis-cli); then
    install_binary "$cli" redis-cli
else
    echo "image.sh: redis-cli not found on PATH: health checks in docker-compose.yml will fail" >&2
fi

# docker import gives equal files a new image each time; the label tells that
# nothing changed. The script is part of the sum, since it sets the commands.
sum=$({ cat "$0"; cd "$root" && find . -type f | LC_ALL=C sort | xargs sha256sum; } | sha256sum | cut -d' ' -f1)
label=redquorum.image.sum
old=$(docker image inspect --format '{{.Id}}' "$name" 2>/dev/null || true)
if [ -n "$old" ] && [ "$(docker image inspect --format "{{index .Config.Labels \"$label\"}}" "$name")" = "$sum" ]; then
    echo "image.sh: $name is up to date" >&2
    echo "$name"
    exit 0
fi

# No ENTRYPOINT: "redis-server --option ..." as the command then means the same
# as with the official images. Protected mode is off, as it is in those: what
# comes through a published port is no loopback client to the server.
tar -C "$root" --owner=0 --group=0 --numeric-owner -cf - . |
    docker import \
        -c 'ENV PATH=/usr/local/bin' \
        -c 'WORKDIR /data' \
        -c 'VOLUME /data' \
        -c 'EXPOSE 6379' \
        -c 'CMD ["redis-server", "--protected-mode", "no"]' \
        -c "LABEL $label=$sum" \
        - "$name" >/dev/null || fail "docker import failed, see above"

docker run --rm --network none "$name" redis-server --version >&2 ||
    fail "the image was made, but its redis-server does not run; is a library missing that ldd does not name?"

# The image that had the name before is of no use without it. Still in use or
# known by another name: then it is not ours to remove.
if [ -n "$old" ] && [ "$(docker image inspect --format '{{len .RepoTags}}' "$old" 2>/dev/null || echo 1)" = 0 ]; then
    docker image rm "$old" >/dev/null 2>&1 || true
fi

echo "$name"
