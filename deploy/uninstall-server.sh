#!/usr/bin/env bash
# Takes back what install-server.sh did: the share, the accounts and the group it made. The drive's
# files stay, unless you ask for their removal. Debian packages stay.
#
#   sudo deploy/uninstall-server.sh
#
#   --delete-data PATH    also delete the drive's folder with all projects; PATH must be its path
#   --dry-run             say what would change, change nothing
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$HERE/lib.sh"
CREATED=$ETC/server.created

DATA=""
while [ $# -gt 0 ]; do
    case $1 in
    --delete-data) takes_value "$@" && DATA=$2 && shift ;;
    --dry-run) DRY_RUN=1 ;;
    -h | --help) usage && exit 0 ;;
    *) wrong "unknown option '$1'" ;;
    esac
    shift
done
need_root

SMB_CONF=/etc/samba/smb.conf
OURS=/etc/samba/ludwig.conf
INCLUDE="include = $OURS"
FOLDER=$(sed -n 's/^ *path = //p' "$OURS" 2>/dev/null || true)
if [ -n "$DATA" ]; then
    check_path --delete-data "$DATA"
    [ -z "$FOLDER" ] || [ "$FOLDER" = "$DATA" ] || wrong "--delete-data $DATA: the drive is $FOLDER"
    [ ! -e "$DATA" ] || [ -f "$DATA/.ludwig/format.json" ] ||
        wrong "--delete-data $DATA: that is not a drive of Ludwig's"
fi

stop_sharing() {
    step "taking the share away" "Run 'testparm' and repair what it complains about."
    if grep -qxF "$INCLUDE" "$SMB_CONF" 2>/dev/null; then
        begin
        grep -vxF "$INCLUDE" "$SMB_CONF" >"$SCRATCH/smb.conf"
        put "$SMB_CONF" "$(stat -c %a "$SMB_CONF")" "$(stat -c %U:%G "$SMB_CONF")" <"$SCRATCH/smb.conf"
        if [ "$DRY_RUN" = 0 ] && ! testparm -s "$SMB_CONF" >/dev/null 2>"$SCRATCH/errors"; then
            cat "$SCRATCH/errors" >&2
            failed "Samba does not accept its configuration without the share"
        fi
        commit
    fi
    remove "$OURS"
    if [ "$CHANGES" != 0 ] && has_systemd && systemctl is-active -q smbd; then
        change "let smbd read its configuration again" smbcontrol smbd reload-config
    fi
}

remove_samba_accounts() {
    local kind name
    [ -f "$CREATED" ] || return 0
    while read -r kind name; do
        if [ "$kind" = samba ] && pdbedit -L -u "$name" >/dev/null 2>&1; then
            change "remove the Samba account $name" pdbedit -x -u "$name"
        fi
    done <"$CREATED"
}

stop_sharing
step "removing accounts" "Somebody may be logged in with one of them."
remove_samba_accounts
remove_accounts
remove "$ETC/node.password" "$ETC/first-passwords" "$CREATED"
remove_empty "$ETC"
if [ -n "$DATA" ]; then
    step "deleting the drive"
    remove "$DATA"
elif [ -n "$FOLDER" ] && [ -d "$FOLDER" ]; then
    say "The drive's files are still in $FOLDER."
fi
finished
