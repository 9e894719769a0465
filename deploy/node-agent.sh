# shellcheck shell=bash disable=SC2154,SC2034,SC2153
# The agent's configuration and its service. Sourced by install-node.sh.

CONFIG=$ETC/worker.toml
UNIT=$UNITS/ludwig-worker.service
LOCAL=$UNIT.d/node.conf
SERVICE_BEFORE=0

# Devices of AMD and Intel GPUs belong to these; NVIDIA's to everybody.
gpu_groups() {
    local name
    [ -e /dev/dri ] || [ -e /dev/kfd ] || return 0
    for name in video render; do
        if getent group "$name" >/dev/null; then member "$name" "$SERVICE_USER"; fi
    done
}

configure_agent() {
    step "configuring the agent" "Look at --set and the other options: ludwig-worker says what is wrong."
    local url=$DRIVE mount="" slots="slots = $SLOTS" writable="$INBOX" after="" home=yes
    SERVICE_BEFORE=$CHANGES
    [ "$SLOTS" != gpus ] || slots='slots = "gpus"'
    if [ "$USE_MOUNT" = 1 ]; then
        url=$MOUNT
        writable+=" -$MOUNT"
        after="Wants=$MOUNT_UNIT.automount"$'\n'"After=$MOUNT_UNIT.automount"
    elif [ -n "$WHAT" ]; then
        mount="user = \"$DRIVE_USER\""
        [ "$ENCRYPT" = 0 ] || mount+=$'\n'"encrypt = true"
    else
        writable+=" -$DRIVE"
        after="RequiresMountsFor=$DRIVE"
    fi
    case $JOB_PYTHON in /home/* | /root/*) home=read-only ;; esac
    begin
    fill worker.toml "HOSTNAME=$NODE" "INBOX=$INBOX" "WORK=$WORK" "PYTHON=$JOB_PYTHON" \
        "SLOTS=$slots" "EXTRA=$EXTRA" "URL=$url" "MOUNT=$mount"
    put "$CONFIG" 0644 root:root <"$FILLED"
    put "$UNIT" 0644 root:root <"$HERE/ludwig-worker.service"
    folder "$UNIT.d" 0755 root:root
    fill node.conf "AFTER=$after" "WRITABLE=$writable" "HOME=$home"
    put "$LOCAL" 0644 root:root <"$FILLED"
    put "$OPT/README.md" 0644 root:root <"$HERE/README.md"
    check_units "$UNIT"
    if [ "$DRY_RUN" = 0 ] && [ "$CHECK" = 1 ]; then check_agent; fi
    commit
}

# As the agent, with what the agent will have: is everything there that it needs?
check_agent() {
    local password=""
    [ ! -f "$ENVIRONMENT" ] || password=$(cat "$SCRATCH/password")
    if LUDWIG_SMB_PASSWORD=$password runuser -u "$SERVICE_USER" -- \
        "$OPT/current/bin/ludwig-worker" check --config "$CONFIG" >"$SCRATCH/output" 2>&1; then
        sed 's/^/  /' "$SCRATCH/output"
    else
        cat "$SCRATCH/output" >&2
        REMEDY="Repair what is BAD above; --no-check starts the agent all the same."
        failed "the agent could not work like this"
    fi
}

run_agent() {
    step "running the agent" "journalctl -u ludwig-worker"
    systemctl is-enabled -q ludwig-worker 2>/dev/null ||
        change "start the agent at boot" systemctl enable -q ludwig-worker
    has_systemd || {
        warn "systemd does not run here: the agent starts at the next boot"
        return 0
    }
    [ "$CHANGES" = "$SERVICE_BEFORE" ] ||
        change "let systemd read its units again" systemctl daemon-reload
    if ! systemctl is-active -q ludwig-worker; then
        change "start the agent" start_agent
    elif [ "$CHANGES" != "$SERVICE_BEFORE" ] || [ "$PREVIOUS" != "$(readlink "$OPT/current")" ]; then
        change "restart the agent (running tasks go on)" start_agent
    fi
}

# A release that does not start is not kept: the one before did.
start_agent() {
    systemctl restart ludwig-worker && return
    journalctl -u ludwig-worker -n 20 --no-pager || true
    if [ -n "$PREVIOUS" ] && [ "$PREVIOUS" != "$(readlink "$OPT/current")" ]; then
        echo "going back to $PREVIOUS"
        switch_release "$OPT" "$PREVIOUS"
        systemctl restart ludwig-worker
    fi
    return 1
}
