#!/usr/bin/env bash
# Builds newer servers than the machine's package has, from the sources that
# Debian distributes, and keeps them outside the tree.
#
#   integration/servers.sh [--update] [name...]    default names: redis valkey
#
#   redis     the newest Redis in Debian testing, unstable or experimental
#   valkey    the newest Valkey there
#   redis-6   the Redis of Debian 11: the oldest version that package pool supports
#
# Standard output has one line a server, its name and its path:
#
#   redis-8.6.3 /root/.cache/redquorum/servers/redis-8.6.3/redis-server
#
# What was built is kept in $REDLOCK_SERVERS_DIR, by default
# ${XDG_CACHE_HOME:-~/.cache}/redquorum/servers. Debian is asked for a newer
# version once a week, or with --update; otherwise no network is needed.
# apt verifies the sources by Debian's archive keyring. It uses a list of sources
# and a state of its own: the machine's are neither read nor changed.
set -euo pipefail

mirror=${REDLOCK_DEBIAN_MIRROR:-http://deb.debian.org/debian}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
cache=${REDLOCK_SERVERS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/redquorum/servers}

say() { echo "servers.sh: $*" >&2; }
fail() {
    say "$@"
    exit 1
}

update=
names=()
for arg; do
    case $arg in
    --update) update=yes ;;
    redis | valkey | redis-6) names+=("$arg") ;;
    *) fail "unknown argument $arg; there are redis, valkey, redis-6 and --update" ;;
    esac
done
[ ${#names[@]} -gt 0 ] || names=(redis valkey)

[ "$(uname -s)" = Linux ] || fail "it takes a Debian, or another Linux with apt and Debian's keyring"
for tool in flock:util-linux apt-get:apt dpkg-source:dpkg-dev make:make cc:gcc c++:g++; do
    command -v "${tool%:*}" >/dev/null || fail "${tool%:*} not found on PATH; please install it (apt-get install ${tool#*:})"
done
[ -r "$keyring" ] || fail "$keyring is missing; please install it (apt-get install debian-archive-keyring)"

mkdir -p "$cache"
exec 9>"$cache/lock" # two runs at the same time would build everything twice
flock 9
work=$(mktemp -d "$cache/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# make is often what calls this script, and what it exports is not for others.
unset MAKEFLAGS MFLAGS MAKELEVEL CFLAGS CPPFLAGS CXXFLAGS LDFLAGS

suites() {
    case $1 in
    redis-6) echo bullseye ;;
    *) echo testing unstable experimental ;;
    esac
}

# prepare makes an apt that sees nothing but the suites. The machine's apt.conf is
# read, for it may name a proxy, but its hooks do not run.
prepare() {
    local dir suite
    dir=$work/apt-$(suites "$1" | tr ' ' -)
    apt_conf=$dir/apt.conf
    [ ! -d "$dir" ] || return 0
    mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
    for suite in $(suites "$1"); do
        echo "deb-src [signed-by=$keyring] $mirror $suite main"
    done >"$dir/sources.list"
    cat >"$apt_conf" <<CONF
Dir::State::lists "$dir/lists";
Dir::Cache "$dir/cache";
Dir::Etc::sourcelist "$dir/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
APT::Update::Error-Mode "any";
APT::Sandbox::User "$(id -un)";
Acquire::Retries "3";
CONF
    say "asking $mirror what there is in $(suites "$1")"
    apt-get -c "$apt_conf" update -qq >"$dir/log" 2>&1 || {
        cat "$dir/log" >&2
        fail "Debian's sources could not be fetched from $mirror; is there a network? (another mirror: REDLOCK_DEBIAN_MIRROR)"
    }
}

# newest prints the highest version of a source package, as Debian counts.
newest() {
    local best='' version
    while read -r version; do
        if [ -z "$best" ] || dpkg --compare-versions "$version" gt "$best"; then
            best=$version
        fi
    done < <(apt-cache -c "$apt_conf" showsrc --only-source "$1" | sed -n 's/^Version: //p')
    [ -n "$best" ] || fail "$mirror has no sources of $1 in $(suites "$2")"
    echo "$best"
}

# build makes $2, version $3 of package $1.
build() {
    local dir=$work/$2
    mkdir -p "$dir/out"
    say "building $2; about a minute"
    # As released: Debian's patches need libraries of Debian's.
    (
        cd "$dir" &&
            apt-get -c "$apt_conf" source -qq --download-only --only-source "$1=$3" &&
            dpkg-source --skip-debianization --skip-patches -x ./*.dsc src &&
            make -C src -j"$(nproc)" MALLOC=libc BUILD_TLS=no USE_SYSTEMD=no &&
            cp "src/src/$1-server" "src/src/$1-cli" out/ &&
            "out/$1-server" --version
    ) >"$dir.log" 2>&1 || {
        tail -n 40 "$dir.log" >&2
        fail "$2 was not built"
    }
    rm -rf "${cache:?}/$2"
    mv "$dir/out" "$cache/$2"
    rm -rf "$dir"
}

for name in "${names[@]}"; do
    package=${name%-6}
    known=$cache/newest-$name # holds what Debian said last, such as redis-8.6.3
    if [ -n "$update" ] || [ -z "$(find "$known" -mtime -7 2>/dev/null)" ] ||
        [ ! -x "$cache/$(cat "$known")/$package-server" ]; then
        prepare "$name"
        debian=$(newest "$package" "$name")
        upstream=${debian#*:}
        upstream=${upstream%-*}
        server=$package-${upstream%%+*}
        [ -x "$cache/$server/$package-server" ] || build "$package" "$server" "$debian"
        echo "$server" >"$known"
    fi
done
for name in "${names[@]}"; do
    server=$(cat "$cache/newest-$name")
    echo "$server $cache/$server/${name%-6}-server"
done
