#!/bin/sh
# Debian says "remove", and an rpm that no version is left.
set -e
case $1 in remove | 0) [ ! -d /run/systemd/system ] || systemctl disable --now redlock.socket redlock.service ;; esac
