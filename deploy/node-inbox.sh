# shellcheck shell=bash disable=SC2154,SC2034
# Who may deliver work to this node, and where to. Sourced by install-node.sh.
#
#   shared account                       an account per member (--users)
#   /var/sftp            root 0755 jail  /var/sftp/ludwig       root 0751
#   /var/sftp/ludwig     root 1775       /var/sftp/ludwig/ana   root 0755 jail
#     tickets/ sources/  ludwig 2770       tickets/ sources/    ana 2770
#
# All of it is of the agent's group, so the agent reads everything and may remove tickets; nobody
# else gets past tickets/ and sources/. A jail is root's, as sshd demands. In the shared inbox the
# agent's group may make folders: scripts of the old system keep their files there while they run.
#
# Keys are root's files in /etc/ludwig/keys, not in a home that SFTP could write to.

KEY_FOLDER=$ETC/keys
ACCOUNTS=(ludwig)

# The accounts that deliver work, and $SCRATCH/keys with a file of keys for each.
collect_keys() {
    local file name key
    mkdir -p "$SCRATCH/keys"
    [ "$PER_MEMBER" = 0 ] || ACCOUNTS=()
    [ -n "$KEYS" ] || return 0
    for file in "$KEYS"/*.pub; do
        [ -f "$file" ] || continue
        name=$(basename "$file" .pub)
        check_name --keys "$name"
        while read -r key || [ -n "$key" ]; do
            case $key in '' | '#'*) continue ;; esac
            printf '%s\n' "$key" | ssh-keygen -l -f - >/dev/null 2>&1 ||
                wrong "--keys: $file holds something that is not a public key"
            # `restrict` also where somebody changes the drop-in: it is the key that may do little.
            # The name in the log line of a login is the comment's.
            printf 'restrict %s\n' "$(sed -E 's/^.*((ssh|ecdsa|sk-)[a-z0-9@.-]+ [A-Za-z0-9+/=]+).*$/\1/' <<<"$key") $name"
        done <"$file" >>"$SCRATCH/keys/$([ "$PER_MEMBER" = 1 ] && echo "$name" || echo ludwig)"
        [ "$PER_MEMBER" = 0 ] || ACCOUNTS+=("$name")
    done
}

make_inbox() {
    step "making the inbox" "Look at the account in /etc/passwd; --adopt uses one that exists already."
    local name
    collect_keys
    folder "$JAILS" 0755 root:root
    if [ "$PER_MEMBER" = 1 ]; then
        folder "$INBOX" 0751 "root:$SERVICE_USER"
    else
        folder "$INBOX" 1775 "root:$SERVICE_USER"
    fi
    for name in "${ACCOUNTS[@]}"; do
        sftp_account "$name"
        if [ "$PER_MEMBER" = 1 ]; then
            folder "$INBOX/$name" 0755 "root:$SERVICE_USER"
            make_boxes "$INBOX/$name" "$name"
        else
            make_boxes "$INBOX" "$name"
        fi
    done
}

make_boxes() {
    folder "$1/sources" 2770 "$2:$SERVICE_USER"
    folder "$1/tickets" 2770 "$2:$SERVICE_USER"
}

sftp_account() {
    if getent passwd "$1" >/dev/null && ! was_created user "$1" && [ "$ADOPT" = 0 ]; then
        failed "there is an account '$1' already, and it would be good for SFTP only from now on. Call the key file differently (NAME-ludwig.pub)"
    fi
    account "$1" / "$SFTP_GROUP"
    member "$SFTP_GROUP" "$1"
}

# sshd lets them in, into the jail, and nowhere else. Tried before anybody notices.
open_door() {
    step "opening the door to the inbox" "Run 'sshd -t' and look at /etc/ssh/sshd_config."
    local name jail=$JAILS start=/ludwig before=$CHANGES
    [ "$PER_MEMBER" = 0 ] || jail=$INBOX/%u start=/
    folder "$KEY_FOLDER" 0755 root:root
    begin
    fill sshd-ludwig.conf "GROUP=$SFTP_GROUP" "JAIL=$jail" "START=$start" "KEYS=$KEY_FOLDER"
    put "$DROP_IN" 0644 root:root <"$FILLED"
    [ "$DRY_RUN" = 1 ] || check_sshd
    if [ "$CHANGES" != "$before" ] && has_systemd && systemctl is-active -q ssh; then
        change "let sshd read its configuration again" systemctl reload ssh
    fi
    commit
    # Without --keys those that are there stay.
    [ -n "$KEYS" ] || return 0
    for name in "${ACCOUNTS[@]}"; do
        touch "$SCRATCH/keys/$name"
        put "$KEY_FOLDER/$name" 0644 root:root <"$SCRATCH/keys/$name"
    done
    for name in "$KEY_FOLDER"/*; do
        if [ -f "$name" ] && [ ! -f "$SCRATCH/keys/${name##*/}" ]; then remove "$name"; fi
    done
}

check_sshd() {
    local name=${ACCOUNTS[0]:-} said
    mkdir -p /run/sshd # not there while a socket waits for the first connection
    sshd -t 2>"$SCRATCH/errors" || {
        cat "$SCRATCH/errors" >&2
        failed "sshd does not accept its configuration with $DROP_IN"
    }
    [ -n "$name" ] || return 0
    said=$(sshd -T -C "user=$name,host=localhost,addr=127.0.0.1")
    REMEDY="Put 'Include /etc/ssh/sshd_config.d/*.conf' at the top of /etc/ssh/sshd_config."
    grep -q '^forcecommand internal-sftp ' <<<"$said" || failed "sshd does not heed $DROP_IN"
    grep -q "^chrootdirectory $JAILS" <<<"$said" || failed "sshd does not heed $DROP_IN"
    REMEDY="Put 'Subsystem sftp internal-sftp' into /etc/ssh/sshd_config."
    grep -q '^subsystem sftp ' <<<"$said" || failed "sshd offers no SFTP"
    REMEDY="Allow group $SFTP_GROUP there: AllowGroups … $SFTP_GROUP, or AllowUsers … ${ACCOUNTS[*]}"
    if grep -q '^allowusers ' <<<"$said" && ! grep -qE "^allowusers ($name|\*)$" <<<"$said"; then
        failed "AllowUsers in sshd's configuration keeps $name out"
    fi
    if grep -q '^allowgroups ' <<<"$said" && ! grep -qE "^allowgroups ($SFTP_GROUP|\*)$" <<<"$said"; then
        failed "AllowGroups in sshd's configuration keeps $name out"
    fi
}
