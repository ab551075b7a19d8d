#!/usr/bin/env bash
# Builds what is published of a version into a folder that is not there yet: the same bytes from the
# same commit by the same tools, in any folder.
#
#   release/artefacts.sh CLONE VERSION FOLDER [-a]
#
# CLONE has the version's tag checked out. With -a nothing is taken from the build cache.
set -euo pipefail

clone=$1
version=$2
dist=$3
anew=${4:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
mkdir "$dist"
commit=$(git -C "$clone" rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git -C "$clone" log -1 --format=%ct)
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC CGO_ENABLED=0 GOAMD64=v1 GOARM64=v8.0
umask 022

# archive FOLDER: a tar of what is in it, that does not tell who made it, where and when.
archive() {
    (cd "$1" && tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - -- *)
}

# build OS ARCH FILE. -buildvcs has the tag and the commit recorded, for "redlock version".
build() {
    GOOS=$1 GOARCH=$2 go -C "$clone" build $anew -trimpath -buildvcs=true -ldflags "-s -w" -o "$3" ./cmd/redlock
}

# What a program of this machine writes: pages, completions, and its version.
build "$(go env GOHOSTOS)" "$(go env GOHOSTARCH)" "$work/redlock"
says=$("$work/redlock" version)
[ "$says" = "redlock version v$version (commit $commit)" ] ||
    { echo "redlock was built from the tag v$version, and says: $says" >&2 && exit 1; }
"$work/redlock" man "$work/man"
mkdir "$work/completions"
for shell in bash zsh fish powershell; do
    "$work/redlock" completion "$shell" >"$work/completions/redlock.${shell/powershell/ps1}"
done

# The licences of all that is in a binary of any system.
licences() {
    local os module folder
    printf 'redlock contains what follows, under these licences.\n'
    for os in linux darwin windows freebsd; do
        GOOS=$os go -C "$clone" list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{"\t"}}{{.Dir}}{{end}}{{end}}' ./cmd/redlock
    done | sort -u | while IFS=$'\t' read -r module folder; do
        find "$folder" -maxdepth 1 -type f \( -iname 'licen[cs]e*' -o -iname 'notice*' -o -iname 'copying*' \) | sort >"$work/found"
        [ -s "$work/found" ] || { echo "$module has no licence in $folder" >&2 && exit 1; }
        printf '\n== %s\n\n' "$module"
        xargs -d '\n' cat <"$work/found"
    done
    printf '\n== the Go standard library\n\n'
    cat "$(go env GOROOT)/LICENSE"
}
licences >"$work/THIRD_PARTY_LICENSES"

# system ARCH: the files of a Linux system, below $work/system.
system() {
    local root=$work/system
    rm -rf "$root"
    install -D -m 755 "$work/linux_$1" "$root/usr/bin/redlock"
    install -D -m 644 -t "$root/usr/share/man/man1" "$work"/man/*
    gzip -9n "$root"/usr/share/man/man1/*
    install -D -m 644 "$work/completions/redlock.bash" "$root/usr/share/bash-completion/completions/redlock"
    install -D -m 644 "$work/completions/redlock.zsh" "$root/usr/share/zsh/site-functions/_redlock"
    install -D -m 644 "$work/completions/redlock.fish" "$root/usr/share/fish/vendor_completions.d/redlock.fish"
    install -D -m 644 -t "$root/usr/lib/systemd/system" "$clone"/deploy/systemd/*
    sed -i 's:/usr/local/bin/:/usr/bin/:' "$root/usr/lib/systemd/system/redlock.service"
    install -D -m 644 "$clone/LICENSE" "$root/usr/share/doc/redlock/copyright"
    cat "$work/THIRD_PARTY_LICENSES" >>"$root/usr/share/doc/redlock/copyright"
    install -D -m 644 -t "$root/usr/share/doc/redlock" "$clone/README.md" "$clone/docs/COMMAND.md" "$clone/docs/SERVE.md"
}

# The group of the socket. The service is not started: it needs /etc/redlock.env first.
group='getent group redlock >/dev/null || groupadd --system redlock'
reload='[ ! -d /run/systemd/system ] || systemctl daemon-reload'

deb() {
    local arch=$1 root=$work/system
    system "$arch"
    mv "$root/usr/share/zsh/site-functions" "$root/usr/share/zsh/vendor-completions" # where Debian's zsh looks
    mkdir "$root/DEBIAN"
    cat >"$root/DEBIAN/control" <<EOF
Package: redlock
Version: ${version/-/\~}
Architecture: $arch
Maintainer: redquorum <https://github.com/redquorum/redquorum>
Depends: passwd
Section: admin
Priority: optional
Homepage: https://github.com/redquorum/redquorum
Description: locks held by the votes of independent Redis servers
 It runs commands under a lock, gives locks to programs over HTTP, shows who
 holds them, and checks the servers.
EOF
    printf '#!/bin/sh\nset -e\n%s\n%s\n' "$group" "$reload" >"$root/DEBIAN/postinst"
    printf '#!/bin/sh\nset -e\n%s\n' "$reload" >"$root/DEBIAN/postrm"
    cat >"$root/DEBIAN/prerm" <<'EOF'
#!/bin/sh
set -e
[ "$1" != remove ] || [ ! -d /run/systemd/system ] || systemctl disable --now redlock.socket redlock.service
EOF
    chmod 755 "$root"/DEBIAN/p*
    dpkg-deb --build --root-owner-group "$root" "$dist/redlock_${version}_$arch.deb" >/dev/null
}

rpm() {
    local arch=$1
    system "$2"
    cat >"$work/redlock.spec" <<EOF
Name: redlock
Version: ${version/-/\~}
Release: 1
Summary: Locks held by the votes of independent Redis servers
License: Apache-2.0 AND MIT AND BSD-3-Clause AND MPL-2.0
URL: https://github.com/redquorum/redquorum
Requires(pre): /usr/sbin/groupadd
%description
It runs commands under a lock, gives locks to programs over HTTP, shows who
holds them, and checks the servers.
%pre
$group
%post
$reload
%postun
$reload
%preun
[ "\$1" != 0 ] || [ ! -d /run/systemd/system ] || systemctl disable --now redlock.socket redlock.service
%files
%defattr(-,root,root)
%dir /usr/share/doc/redlock
$(cd "$work/system" && find . -type f | sort | cut -c2-)
EOF
    # Nothing is stripped or compressed again, and no build is told from another.
    rpmbuild -bb --quiet --target "$arch" --buildroot "$work/system" -D "_rpmdir $work" -D '_rpmfilename redlock.rpm' \
        -D "_topdir $work/rpm" -D '__os_install_post %{nil}' -D '_build_id_links none' -D '_buildhost redquorum' \
        -D 'use_source_date_epoch_as_buildtime 1' -D 'clamp_mtime_to_source_date_epoch 1' "$work/redlock.spec" >/dev/null
    mv "$work/redlock.rpm" "$dist/redlock-$version-1.$arch.rpm"
}

# image ARCH: one that docker load reads, which has redlock and nothing else.
image() {
    local root=$work/image layer config
    rm -rf "$root"
    mkdir -p "$root/files/tmp"
    chmod 1777 "$root/files/tmp"
    cp "$work/linux_$1" "$root/files/redlock"
    cp "$clone/LICENSE" "$work/THIRD_PARTY_LICENSES" "$root/files"
    archive "$root/files" >"$root/layer.tar"
    rm -r "$root/files"
    layer=$(sha256sum <"$root/layer.tar" | cut -d' ' -f1)
    cat >"$root/config.json" <<EOF
{"architecture":"$1","os":"linux","created":"$(date -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)",
"config":{"User":"65532:65532","Entrypoint":["/redlock"],"Labels":{
"org.opencontainers.image.title":"redlock","org.opencontainers.image.licenses":"Apache-2.0",
"org.opencontainers.image.description":"Locks held by the votes of independent Redis servers",
"org.opencontainers.image.documentation":"https://github.com/redquorum/redquorum/blob/v$version/docs/COMMAND.md",
"org.opencontainers.image.source":"https://github.com/redquorum/redquorum",
"org.opencontainers.image.version":"$version","org.opencontainers.image.revision":"$commit"}},
"rootfs":{"type":"layers","diff_ids":["sha256:$layer"]}}
EOF
    config=$(sha256sum <"$root/config.json" | cut -d' ' -f1).json
    mv "$root/config.json" "$root/$config"
    echo "[{\"Config\":\"$config\",\"RepoTags\":[\"redquorum/redlock:$version-$1\"],\"Layers\":[\"layer.tar\"]}]" >"$root/manifest.json"
    archive "$root" | gzip -9n >"$dist/redlock_${version}_linux_$1.image.tar.gz"
}

# The bill of materials is the same wherever the tool was built, but for the tool's own hashes.
GOBIN=$work go install github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
without_tool() { sed '/^        "hashes": \[$/,/^        \],$/d'; }

for os in linux darwin windows freebsd; do
    for arch in amd64 arm64; do
        name=redlock_${version}_${os}_$arch
        folder=$work/archive/$name
        binary=redlock
        [ $os != windows ] || binary=redlock.exe
        build $os $arch "$work/${os}_$arch"
        install -D -m 755 "$work/${os}_$arch" "$folder/$binary"
        cp -r "$work/man" "$work/completions" "$work/THIRD_PARTY_LICENSES" "$clone/LICENSE" "$clone/README.md" "$clone/CHANGELOG.md" "$folder"
        [ $os != linux ] || cp -r "$clone/deploy/systemd" "$folder"
        if [ $os = windows ]; then
            find "$folder" -exec touch -d "@$SOURCE_DATE_EPOCH" {} +
            (cd "$work/archive" && find "$name" | sort | zip -qX -@ "$dist/$name.zip")
        else
            archive "$work/archive" | gzip -9n >"$dist/$name.tar.gz"
        fi
        rm -r "$work/archive"
        "$work/cyclonedx-gomod" bin -json -std -noserial -notimestamp -version "v$version" "$work/${os}_$arch" 2>"$work/log" |
            without_tool >"$dist/$name.cdx.json" || { cat "$work/log" >&2 && exit 1; }
    done
done
deb amd64
deb arm64
rpm x86_64 amd64
rpm aarch64 arm64
image amd64
image arm64

# source OS ARCH: where Homebrew takes it, for one of its four machines.
source_of() {
    local file=redlock_${version}_$1_$2.tar.gz
    echo "      url \"https://github.com/redquorum/redquorum/releases/download/v$version/$file\""
    echo "      sha256 \"$(sha256sum <"$dist/$file" | cut -d' ' -f1)\""
}
cat >"$dist/redlock.rb" <<EOF
class Redlock < Formula
  desc "Locks held by the votes of independent Redis servers"
  homepage "https://github.com/redquorum/redquorum"
  version "$version"
  license "Apache-2.0"

  on_macos do
    on_intel do
$(source_of darwin amd64)
    end
    on_arm do
$(source_of darwin arm64)
    end
  end
  on_linux do
    on_intel do
$(source_of linux amd64)
    end
    on_arm do
$(source_of linux arm64)
    end
  end

  def install
    bin.install "redlock"
    man1.install Dir["man/*"]
    bash_completion.install "completions/redlock.bash" => "redlock"
    zsh_completion.install "completions/redlock.zsh" => "_redlock"
    fish_completion.install "completions/redlock.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/redlock version")
  end
end
EOF
(cd "$dist" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS)
