# shellcheck shell=bash disable=SC2154,SC2034
# How this node reaches the shared drive. Sourced by install-node.sh.
#
# With a mount: systemd mounts it when somebody looks (an automount: a file server that is away at
# boot delays nothing), with the nodes' account, for the agent's account only. The password is in
# root-only files. Without: the agent gets the password from systemd, in its environment.

CREDENTIALS=$ETC/drive.credentials
KEPT_PASSWORD=$ETC/drive.password
ENVIRONMENT=$ETC/worker.env
MOUNT_UNIT=""

reach_drive() {
    if [ -z "$WHAT" ]; then
        remove "$CREDENTIALS" "$KEPT_PASSWORD" "$ENVIRONMENT"
        remove_mounts
        return
    fi
    step "reaching the drive" "Is $WHAT right, and its password? Try: smbclient $WHAT -U $DRIVE_USER"
    head -n 1 "${PASSWORD:-$KEPT_PASSWORD}" >"$SCRATCH/password"
    put "$KEPT_PASSWORD" 0600 root:root <"$SCRATCH/password"
    if [ "$USE_MOUNT" = 1 ]; then
        remove "$ENVIRONMENT"
        mount_drive
    else
        remove "$CREDENTIALS"
        remove_mounts
        # As systemd reads it: in double quotes, with \ and " escaped.
        printf 'LUDWIG_SMB_PASSWORD="%s"\n' "$(sed 's/[\\"`$]/\\&/g' "$SCRATCH/password")" >"$SCRATCH/env"
        put "$ENVIRONMENT" 0600 root:root <"$SCRATCH/env"
    fi
}

mount_drive() {
    local more="" before
    MOUNT_UNIT=$(systemd-escape --path "$MOUNT")
    REMEDY="Use that mount (--drive $MOUNT), or remove the line, or choose another --mount."
    ! grep -Eq "^[^#]+[[:space:]]${MOUNT}[[:space:]]" /etc/fstab 2>/dev/null ||
        failed "$MOUNT is in /etc/fstab already"
    printf 'username=%s\npassword=%s\n' "$DRIVE_USER" "$(cat "$SCRATCH/password")" >"$SCRATCH/credentials"
    put "$CREDENTIALS" 0600 root:root <"$SCRATCH/credentials"
    [ -z "$PORT" ] || more+=",port=$PORT"
    [ "$ENCRYPT" = 0 ] || more+=",seal"
    before=$CHANGES
    begin
    fill drive.mount "WHAT=$WHAT" "WHERE=$MOUNT" "MORE=$more" \
        "UID=$(id -u "$SERVICE_USER" 2>/dev/null || true)" "GID=$(id -g "$SERVICE_USER" 2>/dev/null || true)"
    put "$UNITS/$MOUNT_UNIT.mount" 0644 root:root <"$FILLED"
    fill drive.automount "WHERE=$MOUNT"
    put "$UNITS/$MOUNT_UNIT.automount" 0644 root:root <"$FILLED"
    check_units "$UNITS/$MOUNT_UNIT.mount" "$UNITS/$MOUNT_UNIT.automount"
    commit
    systemctl is-enabled -q "$MOUNT_UNIT.automount" 2>/dev/null ||
        change "mount the drive when it is needed" systemctl enable -q "$MOUNT_UNIT.automount"
    has_systemd || return 0
    if [ "$CHANGES" != "$before" ]; then
        change "let systemd read its units again" systemctl daemon-reload
    fi
    REMEDY="journalctl -u $MOUNT_UNIT.automount; in a container without autofs: --no-mount"
    if [ ! -d "$MOUNT" ]; then record folder "$MOUNT"; fi # systemd makes it
    systemctl is-active -q "$MOUNT_UNIT.automount" ||
        change "wait for somebody who needs the drive" systemctl start "$MOUNT_UNIT.automount"
}

# What an earlier run with other options left.
remove_mounts() {
    local unit
    for unit in "$UNITS"/*.automount; do
        if grep -q "Ludwig's install-node.sh" "$unit" 2>/dev/null; then
            unmount "$(basename "$unit" .automount)"
        fi
    done
}

# unmount NAME
unmount() {
    if has_systemd; then
        change "unmount the drive" systemctl disable -q --now "$1.automount"
        systemctl stop "$1.mount" 2>/dev/null || true
    else
        change "no longer mount the drive" systemctl disable -q "$1.automount"
    fi
    remove "$UNITS/$1.automount" "$UNITS/$1.mount"
    # A mount point that systemd made for us, unless something is in it.
    local path
    path=$(systemd-escape --unescape --path "$1")
    if was_created folder "$path"; then remove_empty "$path"; fi
}
