#!/bin/sh
# The group is that of the socket. Nothing is started: the service needs /etc/redlock.env first.
set -e
getent group redlock >/dev/null || groupadd --system redlock
[ ! -d /run/systemd/system ] || systemctl daemon-reload
