#!/usr/bin/env bash
# Takes each module, as its users will: with go get, into a program in an empty folder, and has the
# program and the module's examples built and run. The go command reads the tags of CLONE where it
# would ask GitHub, and nothing of it comes into this machine's module cache.
#
#   release/modules.sh CLONE VERSION
set -euo pipefail

clone=$1
version=$2
root=github.com/redquorum/redquorum
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$clone.insteadOf" GIT_CONFIG_VALUE_0="https://$root"
export GONOPROXY=$root GONOSUMDB=$root
# Modules of others come from the cache, if it has them.
GOPROXY="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)"
export GOPROXY GOMODCACHE="$work/modules" GOBIN="$work/bin" GOFLAGS="${GOFLAGS:-} -mod=mod -modcacherw"

# take MODULE PACKAGE...: they are packages of the module.
take() {
    echo "go get $1@v$version"
    mkdir -p "$work/reader/$1"
    cd "$work/reader/$1"
    go mod init example.com/reader 2>/dev/null
    go get "$1@v$version" 2>"$work/log" || { cat "$work/log" >&2 && exit 1; }
    {
        echo "package main"
        printf 'import _ "%s"\n' "${@:2}"
        echo "func main() {}"
    } >main.go
    go build -o reader .
    ./reader
    go test -run '^Example' "${@:2}" 2>"$work/log" || { cat "$work/log" >&2 && exit 1; }
}

take "$root" "$root/redlock" "$root/pool"
for module in "$clone"/contrib/*/; do
    module=$root/contrib/$(basename "$module")
    take "$module" "$module"
done

cd "$work"
go install "$root/cmd/redlock@v$version" 2>"$work/log" || { cat "$work/log" >&2 && exit 1; }
[ "$(bin/redlock version)" = "redlock version v$version" ] ||
    { echo "go install made a redlock that says: $(bin/redlock version)" >&2 && exit 1; }
bin/redlock demo >"$work/log" || { cat "$work/log" >&2 && exit 1; }
