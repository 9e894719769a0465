#!/usr/bin/env bash
# Makes a folder of this file server the lab's shared drive: a Samba share, the group of the lab's
# members, the account of the nodes. Nothing but Samba runs here. Run it again whenever you like.
#
#   sudo deploy/install-server.sh --folder /srv/research_data --members ana,bob
#
#   --folder PATH         the folder that is shared (default: /srv/research_data)
#   --share NAME          what the share is called (default: research_data)
#   --group NAME          the group of those who may use it (default: ludwig)
#   --node-user NAME      the account that the nodes use (default: ludwig-node)
#   --node-password FILE  its password; default: made up, and kept in /etc/ludwig/node.password
#   --members A,B,…       people to give access to; accounts without a login are made for those who
#                         have none here, with first passwords in /etc/ludwig/first-passwords
#   --share-only          leave the settings of the whole server alone (minimum protocol, signing,
#                         guests), and demand encryption for this share instead
#   --encrypt             refuse clients that do not encrypt (default: encryption is offered)
#   --adopt               give files that are in the folder already the modes of the drive
#   --no-packages         install no Debian packages; stop if one is missing
#   --dry-run             say what would change, change nothing
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$HERE/lib.sh"
CREATED=$ETC/server.created

FOLDER=/srv/research_data
SHARE=research_data
GROUP=ludwig
NODE_USER=ludwig-node
NODE_PASSWORD=""
MEMBERS=""
SHARE_ONLY=0
ENCRYPT=if_required
ADOPT=0

while [ $# -gt 0 ]; do
    case $1 in
    --folder) takes_value "$@" && FOLDER=$2 && shift ;;
    --share) takes_value "$@" && SHARE=$2 && shift ;;
    --group) takes_value "$@" && GROUP=$2 && shift ;;
    --node-user) takes_value "$@" && NODE_USER=$2 && shift ;;
    --node-password) takes_value "$@" && NODE_PASSWORD=$2 && shift ;;
    --members) takes_value "$@" && MEMBERS=$2 && shift ;;
    --share-only) SHARE_ONLY=1 && ENCRYPT=required ;;
    --encrypt) ENCRYPT=required ;;
    --adopt) ADOPT=1 ;;
    --no-packages) PACKAGES_ALLOWED=0 ;;
    --dry-run) DRY_RUN=1 ;;
    -h | --help) usage && exit 0 ;;
    *) wrong "unknown option '$1'" ;;
    esac
    shift
done
need_root
check_path --folder "$FOLDER"
check_name --share "$SHARE"
check_name --group "$GROUP"
check_name --node-user "$NODE_USER"
[[ ! ${SHARE,,} =~ ^(global|homes|printers|ipc\$|print\$)$ ]] || wrong "--share '$SHARE': the name means something to Samba"
IFS=, read -r -a MEMBER_LIST <<<"$MEMBERS"
for name in "${MEMBER_LIST[@]}"; do check_name --members "$name"; done
[ -z "$NODE_PASSWORD" ] || [ -s "$NODE_PASSWORD" ] || wrong "--node-password '$NODE_PASSWORD': no such file, or empty"

SMB_CONF=/etc/samba/smb.conf
OURS=/etc/samba/ludwig.conf
INCLUDE="include = $OURS"

# --- checks that change nothing ---------------------------------------------------------------

# The administrator's configuration without our line.
without_us() {
    if [ -f "$SMB_CONF" ]; then grep -vxF "$INCLUDE" "$SMB_CONF" || true; else printf '[global]\n'; fi
}

# valid_samba FILE: Samba reads it without a complaint about our settings.
valid_samba() {
    testparm -s "$1" >"$SCRATCH/testparm" 2>"$SCRATCH/testparm.errors" &&
        ! grep -Eiq 'unknown parameter|badly formed|ignoring' "$SCRATCH/testparm.errors"
}

check_samba() {
    without_us >"$SCRATCH/theirs.conf"
    REMEDY="Run 'testparm' and repair what it complains about, in $SMB_CONF."
    testparm -s "$SCRATCH/theirs.conf" >"$SCRATCH/theirs" 2>/dev/null ||
        failed "Samba's configuration is broken already"
    REMEDY="Choose another name with --share, or remove [$SHARE] from $SMB_CONF."
    ! grep -qixF "[$SHARE]" "$SCRATCH/theirs" || failed "there is a share [$SHARE] already"
    REMEDY="Ludwig needs a standalone server or a member of a domain."
    ! grep -Eiq 'server role = .*domain controller' "$SCRATCH/theirs" ||
        failed "this server is a domain controller, which sets its own modules for every share"
    ! grep -Eiq '^[[:space:]]*passdb backend = ldap' "$SCRATCH/theirs" ||
        warn "accounts are in LDAP: create $NODE_USER and the members there"
}

# --- what must be true ------------------------------------------------------------------------

make_drive() {
    step "making the drive's folder" "Is the disk mounted, and is it ext4, XFS, btrfs or ZFS?"
    folder "$FOLDER" 3770 "root:$GROUP"
    folder "$FOLDER/.ludwig" 3770 "root:$GROUP"
    folder "$FOLDER/.ludwig/nodes" 3770 "root:$GROUP"
    check_disk
    # As ludwig.drives.write_format has it. An existing drive keeps its version.
    if [ -f "$FOLDER/.ludwig/format.json" ]; then
        own "$FOLDER/.ludwig/format.json" 0640 "root:$GROUP"
    else
        printf '{"version": 1}\n' >"$SCRATCH/format"
        put "$FOLDER/.ludwig/format.json" 0640 "root:$GROUP" <"$SCRATCH/format"
    fi
    [ "$ADOPT" = 0 ] || adopt
}

check_disk() {
    local at=$FOLDER probe
    [ "$DRY_RUN" = 0 ] || return 0
    if command -v getfacl >/dev/null && getfacl -cp "$at" | grep -q '^default:'; then
        change "remove the default ACL of $at, which would let members change each other's files" \
            setfacl -k "$at" "$at/.ludwig" "$at/.ludwig/nodes"
    fi
    probe=$(mktemp "$at/.ludwig/.tmp-probe.XXXXXX")
    if ! ln "$probe" "$probe.link" 2>/dev/null; then
        rm -f "$probe"
        failed "the disk of $at ($(stat -f -c %T "$at")) cannot make hard links"
    fi
    rm -f "$probe" "$probe.link"
}

# What an earlier system left: the same three bits as new files get. Nobody loses their files.
adopt() {
    local count
    step "adopting what is in the folder already"
    count=$(find "$FOLDER" -mindepth 1 \( -path "$FOLDER/.ludwig" -prune -o \
        \( -type d \( ! -perm -3770 -o ! -group "$GROUP" \) \
        -o -type f \( -perm /0027 -o ! -perm -0640 -o ! -group "$GROUP" \) \) -print \) | wc -l)
    [ "$count" != 0 ] || return 0
    change "give $count files and folders the group and modes of the drive" adopt_all
}

adopt_all() {
    find "$FOLDER" -mindepth 1 \( -path "$FOLDER/.ludwig" -prune -o \
        -type d -exec chgrp -h "$GROUP" {} + -exec chmod 3770 {} + -o \
        -type f -exec chgrp -h "$GROUP" {} + -exec chmod u+rw,g+r,g-w,o-rwx {} + \)
}

random_password() { head -c 18 /dev/urandom | base64 | tr '+/' 'xy'; }

has_samba_account() { pdbedit -L -u "$1" >/dev/null 2>&1; }

# samba_account NAME PASSWORD_FILE
samba_account() {
    { cat "$2" && cat "$2"; } | smbpasswd -s -a "$1"
}

make_node_account() {
    step "making the account of the nodes" "Is Samba's account database writable (pdbedit -L)?"
    account "$NODE_USER" / "$GROUP"
    member "$GROUP" "$NODE_USER"
    local kept=$ETC/node.password
    folder "$ETC" 0755 root:root
    if [ -n "$NODE_PASSWORD" ]; then
        head -n 1 "$NODE_PASSWORD" >"$SCRATCH/password"
    elif [ -f "$kept" ]; then
        cat "$kept" >"$SCRATCH/password"
    else
        random_password >"$SCRATCH/password"
    fi
    if ! cmp -s "$SCRATCH/password" "$kept" || ! has_samba_account "$NODE_USER"; then
        change "set the Samba password of $NODE_USER" samba_account "$NODE_USER" "$SCRATCH/password"
        record samba "$NODE_USER"
    fi
    put "$kept" 0600 root:root <"$SCRATCH/password"
}

make_members() {
    [ "${#MEMBER_LIST[@]}" -gt 0 ] || return 0
    step "making the members' accounts" "Is Samba's account database writable (pdbedit -L)?"
    local name
    for name in "${MEMBER_LIST[@]}"; do
        account "$name" / "$GROUP"
        member "$GROUP" "$name"
        if [ "$DRY_RUN" = 1 ] || ! has_samba_account "$name"; then
            has_samba_account "$name" || first_password "$name"
        fi
    done
}

first_password() {
    random_password >"$SCRATCH/password"
    change "set a first Samba password for $1 (in $ETC/first-passwords)" \
        samba_account "$1" "$SCRATCH/password"
    record samba "$1"
    [ "$DRY_RUN" = 0 ] || return 0
    (umask 077 && printf '%s:%s\n' "$1" "$(cat "$SCRATCH/password")" >>"$ETC/first-passwords")
}

share_it() {
    step "sharing $FOLDER as $SHARE" "Read what testparm says about $OURS above."
    local global="" before=$CHANGES
    [ "$SHARE_ONLY" = 1 ] || global=$(sed '/^##/d' "$HERE/templates/smb-global.conf")
    fill smb-ludwig.conf "GLOBAL=$global" "SHARE=$SHARE" "FOLDER=$FOLDER" "GROUP=$GROUP" "ENCRYPT=$ENCRYPT"
    # Tried together with the administrator's own before anything is in its place.
    { cat "$SCRATCH/theirs.conf" && cat "$FILLED"; } >"$SCRATCH/both.conf"
    valid_samba "$SCRATCH/both.conf" || {
        cat "$SCRATCH/testparm.errors" >&2
        failed "Samba does not accept the settings"
    }
    begin
    put "$OURS" 0644 root:root <"$FILLED"
    # The last line of the file: what comes after an include belongs to the included share.
    if [ "$(tail -n 1 "$SMB_CONF" 2>/dev/null)" != "$INCLUDE" ]; then
        { cat "$SCRATCH/theirs.conf" && printf '%s\n' "$INCLUDE"; } >"$SCRATCH/smb.conf"
        put "$SMB_CONF" "$(stat -c '%a' "$SMB_CONF" 2>/dev/null || echo 644)" \
            "$(stat -c '%U:%G' "$SMB_CONF" 2>/dev/null || echo root:root)" <"$SCRATCH/smb.conf"
    fi
    if [ "$DRY_RUN" = 0 ] && ! valid_samba "$SMB_CONF"; then
        cat "$SCRATCH/testparm.errors" >&2
        failed "Samba does not accept its configuration with the new share"
    fi
    serve "$before"
    commit
}

# serve COUNT: smbd runs, with this configuration.
serve() {
    has_systemd || {
        warn "systemd does not run here: start or reload smbd yourself"
        return 0
    }
    REMEDY="systemctl status smbd; journalctl -u smbd"
    systemctl is-enabled -q smbd || change "start smbd at boot" systemctl enable -q smbd
    if ! systemctl is-active -q smbd; then
        change "start smbd" systemctl start smbd
    elif [ "$CHANGES" != "$1" ]; then
        change "let smbd read its configuration again" smbcontrol smbd reload-config
    fi
}

step "looking at this machine" "This is for Debian and Ubuntu."
command -v apt-get >/dev/null || failed "there is no apt-get"
packages samba acl
if [ "$DRY_RUN" = 1 ] && ! command -v testparm >/dev/null; then
    say "  (what Samba's configuration is like can only be told when it is installed)"
    exit 0
fi
check_samba
group "$GROUP"
make_drive
make_node_account
make_members
share_it
finished
