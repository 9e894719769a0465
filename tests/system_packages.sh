#!/usr/bin/env bash
# Makes sure that the programs the tests drive are there.
#
# As root on Debian: installs what is missing, and starts no service. Otherwise: says which tests
# will be skipped. With CI=true something missing is a failure. Calls no package manager when
# nothing is missing.
set -euo pipefail

# program, Debian package, what is skipped without it
needed='
smbd       samba            tests against a real SMB server
smbclient  smbclient        comparisons with an independent SMB client
sshd       openssh-server   tests against a real SFTP server
sftp       openssh-client   tests against a real SFTP server
gcc        gcc              tests with a simulated GPU
tmux       tmux             tests of the command line in a terminal
git        git              tests of source snapshots in a git checkout
ip         iproute2         tests that cut the network
unshare    util-linux       tests with several nodes on one machine
bwrap      bubblewrap       tests of the private view of a job
mmdebstrap mmdebstrap       tests of deploy/ on machines of their own
systemd-nspawn systemd-container tests of deploy/ on machines of their own
systemd-analyze systemd     tests of the service
shellcheck shellcheck       tests of the scripts in deploy/
'

# For the virtual machine with a kernel CIFS mount: continuous integration does without, unless the
# machine's disk is cached.
cached=$(ls "$(dirname "$0")"/../.cache/cifs-vm/*/built.json 2>/dev/null || true)
if [ "${1:-}" = --cifs ] || [ "${CI:-}" != true ] || [ -n "$cached" ]; then
    needed+='
qemu-system-x86_64  qemu-system-x86  tests on a kernel CIFS mount
mmdebstrap          mmdebstrap       tests on a kernel CIFS mount
mke2fs              e2fsprogs        tests on a kernel CIFS mount
'
fi

# Servers live in /usr/sbin, which is not on everybody's PATH.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

have() {
    command -v "$1" >/dev/null 2>&1 || return 1
    # A compiler without the headers of the C library compiles nothing.
    [ "$1" != gcc ] || printf '#include <stdio.h>\n' | gcc -E - >/dev/null 2>&1
}

missing_packages() {
    local program package rest
    while read -r program package rest; do
        [ -n "$program" ] || continue
        have "$program" && continue
        echo "$package"
        [ "$package" != gcc ] || echo libc6-dev
    done <<<"$needed" | sort -u
}

report_missing() {
    local program package rest
    while read -r program package rest; do
        [ -n "$program" ] || continue
        have "$program" && continue
        echo "  $program (package $package): $rest" >&2
    done <<<"$needed"
}

install_missing() {
    local policy=/usr/sbin/policy-rc.d
    export DEBIAN_FRONTEND=noninteractive
    # Debian starts a server as soon as it is installed, unless this script says no.
    if [ ! -e "$policy" ]; then
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    apt-get update -q >&2 || true
    apt-get install -q -y --no-install-recommends "$@" >&2 || true
}

mapfile -t packages < <(missing_packages)
[ "${#packages[@]}" -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing for the tests: ${packages[*]}" >&2
    install_missing "${packages[@]}"
    mapfile -t packages < <(missing_packages)
    [ "${#packages[@]}" -gt 0 ] || exit 0
fi

echo "Missing, so these tests will be skipped:" >&2
report_missing
echo "To have them: apt-get install ${packages[*]}" >&2
[ "${CI:-}" != true ] || exit 1
