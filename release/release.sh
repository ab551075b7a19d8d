#!/usr/bin/env bash
# Makes a release, or tries to: docs/RELEASING.md.
#
#   release/release.sh VERSION [dry-run]        VERSION as in 1.0.0
#
# All is done in a clone, from which the tags come back when every check has passed, and the folder
# dist in any case. A version that is tagged is built again from its tag.
set -euo pipefail
cd "$(dirname "$0")/.."

root=github.com/redquorum/redquorum
version=${1:-}
dry_run=${2:-}

fail() {
    echo "release: $*" >&2
    exit 1
}
step() { printf '== %s (after %d s)\n' "$*" "$SECONDS"; }

[[ $version =~ ^[01]\.[0-9]+\.[0-9]+(-[0-9a-z.]+)?$ ]] ||
    fail "VERSION must be one such as 1.0.0 or 1.1.0-rc.1, not \"$version\"; from 2.0.0 on the modules need new paths"
for tool in go git tar gzip zip sha256sum dpkg-deb rpmbuild; do
    command -v "$tool" >/dev/null || fail "$tool is missing; on Debian: apt-get install zip dpkg rpm"
done
[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed; a release is made of commits"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
export LC_ALL=C TZ=UTC GOWORK=off GOTOOLCHAIN=local
umask 022

# Who has a name in this clone alone has it in the other, too.
GIT_AUTHOR_NAME=$(git config user.name) && GIT_AUTHOR_EMAIL=$(git config user.email) ||
    fail "git does not know who you are: git config user.name and user.email"
export GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME="$GIT_AUTHOR_NAME" GIT_COMMITTER_EMAIL="$GIT_AUTHOR_EMAIL"
clone=$work/one/redquorum
git clone -q . "$clone"

if tagged=$(git rev-parse -q --verify "refs/tags/v$version^{commit}"); then
    step "v$version is tagged: it is built again"
    git -C "$clone" checkout -q "$tagged"
else
    step "a commit and its tags"
    sed -n '/^## \[Unreleased\]$/,/^## \[[0-9]/p' CHANGELOG.md | grep '^- ' >/dev/null ||
        fail "CHANGELOG.md has nothing under the heading [Unreleased]"
    if [[ $version != *-* ]]; then # what is new since a candidate is new since the release before
        sed -i.old "s/^## \[Unreleased\]$/&\n\n## [$version] - $(date +%F)/" "$clone/CHANGELOG.md"
        rm "$clone/CHANGELOG.md.old"
    fi
    # Before the first release documents say how to get redlock without one.
    if [[ $version != *-* ]] && [ -f release/published.patch ]; then
        git -C "$clone" apply --index release/published.patch
        git -C "$clone" rm -qf release/published.patch
        go -C "$clone" test ./internal/readme
    fi
    for module in "$clone"/contrib/*/; do
        go -C "$module" mod edit -require="$root@v$version"
    done
    git -C "$clone" commit -qam "release: $version"
    git -C "$clone" tag -a -m "v$version" "v$version"
    for module in "$clone"/contrib/*/; do
        name=contrib/$(basename "$module")/v$version
        git -C "$clone" tag -a -m "$name" "$name"
    done
fi

# The scripts of a version that is tagged are its own.
"$clone/release/modules.sh" "$clone" "$version"

if [ -z "$tagged" ] && before=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null); then
    step "clients of $before and of this version on the same servers, under faults"
    git clone -q --branch "$before" . "$work/before"
    go -C "$work/before" build -o "$work/redlock" ./cmd/redlock
    go -C "$clone/chaos" run . --duration 2m --scenario serve,stop-anywhere --redlock "$work/redlock"
fi

step "what is published, twice, in two folders, and the second time without the build cache"
"$clone/release/artefacts.sh" "$clone" "$version" "$work/dist"
git clone -q "$clone" "$work/another"
"$clone/release/artefacts.sh" "$work/another" "$version" "$work/again" -a
diff "$work/dist/SHA256SUMS" "$work/again/SHA256SUMS" || fail "the two differ in the files above"

rm -rf dist
mv "$work/dist" dist
if [ -z "$dry_run" ] && [ -z "$tagged" ]; then
    git pull -q --ff-only "$clone" HEAD
    git fetch -q "$clone" "refs/tags/v$version:refs/tags/v$version" "refs/tags/contrib/*/v$version:refs/tags/contrib/*/v$version"
fi
step "dist has $(wc -l <dist/SHA256SUMS) files"
