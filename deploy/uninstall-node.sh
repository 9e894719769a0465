#!/usr/bin/env bash
# Takes back what install-node.sh did: the service, the inbox, the mount, the accounts it made,
# Ludwig itself. Debian packages stay, and so does everything on the shared drive.
#
#   sudo deploy/uninstall-node.sh
#
#   --force      also while tasks are running: they are ended, other nodes run them again
#   --dry-run    say what would change, change nothing
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$HERE/lib.sh"
CREATED=$ETC/node.created

FORCE=0
while [ $# -gt 0 ]; do
    case $1 in
    --force) FORCE=1 ;;
    --dry-run) DRY_RUN=1 ;;
    -h | --help) usage && exit 0 ;;
    *) wrong "unknown option '$1'" ;;
    esac
    shift
done
need_root

SERVICE_USER=ludwig-worker
JAILS=/var/sftp
UNITS=/etc/systemd/system
DROP_IN=/etc/ssh/sshd_config.d/50-ludwig.conf
# shellcheck source-path=SCRIPTDIR source=node-drive.sh
. "$HERE/node-drive.sh"

# Processes of jobs: all that the agent's account runs, but for the agent itself.
jobs_running() {
    local agent
    agent=$(systemctl show -P MainPID ludwig-worker 2>/dev/null || echo 0)
    pgrep -u "$SERVICE_USER" 2>/dev/null | grep -vx "${agent:-0}" || true
}

stop_agent() {
    step "stopping the agent" "journalctl -u ludwig-worker"
    local pids
    pids=$(getent passwd "$SERVICE_USER" >/dev/null && jobs_running) || true
    if [ -n "$pids" ] && [ "$FORCE" = 0 ]; then
        REMEDY="ludwig-worker drain, and wait (ludwig nodes); or --force."
        failed "tasks are running on this node"
    fi
    if [ -f "$UNITS/ludwig-worker.service" ]; then
        if has_systemd; then
            change "stop the agent" systemctl disable -q --now ludwig-worker
        else
            change "no longer start the agent" systemctl disable -q ludwig-worker
        fi
    fi
    pids=$(getent passwd "$SERVICE_USER" >/dev/null && pgrep -u "$SERVICE_USER") || true
    if [ -n "$pids" ]; then
        # shellcheck disable=SC2086 # a list of numbers
        change "end running tasks" end_jobs $pids
    fi
}

end_jobs() {
    kill "$@" 2>/dev/null
    for _ in $(seq 50); do
        pgrep -u "$SERVICE_USER" >/dev/null || return 0
        sleep 0.2
    done
    pkill -KILL -u "$SERVICE_USER" # only this account's, and there is nothing of the system's
    sleep 0.5
    ! pgrep -u "$SERVICE_USER" >/dev/null
}

close_door() {
    step "closing the door" "Run 'sshd -t' and look at /etc/ssh/sshd_config."
    [ -f "$DROP_IN" ] || return 0
    remove "$DROP_IN"
    if has_systemd && systemctl is-active -q ssh; then
        change "let sshd read its configuration again" systemctl reload ssh
    fi
}

stop_agent
step "removing the mount" "Something may be using the drive: fuser -vm /media/research_data"
remove_mounts
close_door
step "removing files"
remove "$UNITS/ludwig-worker.service" "$UNITS/ludwig-worker.service.d"
if [ "$CHANGES" != 0 ] && has_systemd; then
    change "let systemd read its units again" systemctl daemon-reload
    systemctl reset-failed ludwig-worker 2>/dev/null || true
fi
remove "$JAILS/ludwig" /var/lib/ludwig /opt/ludwig
remove_empty "$JAILS"
step "removing accounts" "Somebody may be logged in with one of them."
remove_accounts
remove "$ETC/keys" "$ETC/worker.toml" "$ETC/worker.env" "$ETC/drive.credentials" "$ETC/drive.password" "$CREATED"
remove_empty "$ETC"
finished
