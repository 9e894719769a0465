# shellcheck shell=bash
# What the scripts of deploy/ have in common. Sourced, never run.
#
# A script names the step it is in (`step`), states what must be true (`put`, `folder`, `group`,
# `account`, …) and ends with `finished`. Each statement changes nothing when it holds already, and
# only tells when --dry-run was given. A failure names the step and the remedy, and takes back the
# files written since `begin`: nothing is left half-configured.

set -Eeuo pipefail
umask 022
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

DRY_RUN=0
CHANGES=0
PACKAGES_ALLOWED=1
STEP="reading the command line"
REMEDY=""
UNDO=()
UNDOABLE=0
ETC=/etc/ludwig
CREATED=""

SCRATCH=$(mktemp -d)
chmod 700 "$SCRATCH"
trap 'rm -rf "$SCRATCH"' EXIT
trap 'failed "line $LINENO: $BASH_COMMAND"' ERR

# --- telling ----------------------------------------------------------------------------------

# The comment at the top of a script is its help.
usage() { sed -n '2,/^[^#]/ { /^#/ s/^# \{0,1\}//p }' "$0"; }

say() { printf '%s\n' "$*"; }

warn() { printf 'note: %s\n' "$*" >&2; }

# step WHAT [REMEDY]
step() {
    STEP=$1
    REMEDY=${2:-}
    say "$1"
}

# wrong MESSAGE: the command line makes no sense.
wrong() {
    printf '%s: %s\nTry %s --help\n' "${0##*/}" "$*" "${0##*/}" >&2
    exit 2
}

# failed MESSAGE: take back what is half done, say where it stopped and what to do.
failed() {
    trap - ERR
    roll_back
    {
        printf '\n%s stopped while: %s\n' "${0##*/}" "$STEP"
        printf '  why:    %s\n' "$*"
        [ -z "$REMEDY" ] || printf '  remedy: %s\n' "$REMEDY"
        printf '  What was done before this step stays; running the script again goes on from here.\n'
    } >&2
    exit 1
}

finished() {
    if [ "$CHANGES" = 0 ]; then
        say "Nothing to change: everything is as it should be."
    elif [ "$DRY_RUN" = 1 ]; then
        say "$CHANGES changes would be made; nothing was changed."
    else
        say "$CHANGES changes were made."
    fi
}

# takes_value "$@": complain unless the option has its argument.
takes_value() {
    if [ $# -lt 2 ] || [ -z "$2" ]; then wrong "$1 needs a value"; fi
}

# A name that may become an account, a host, a share: nothing that a shell or a file could misread.
check_name() {
    [[ $2 =~ ^[a-zA-Z0-9]([a-zA-Z0-9._-]{0,30}[a-zA-Z0-9])?$ ]] ||
        wrong "$1 '$2': use letters, digits, '.', '_' and '-', at most 32 of them"
}

check_path() {
    [[ $2 =~ ^/[a-zA-Z0-9._/@+-]+$ && $2 != *..* && $2 != */ ]] ||
        wrong "$1 '$2': must be an absolute path of letters, digits, '.', '_', '-' and '+'"
}

need_root() {
    [ "$(id -u)" = 0 ] || wrong "must be run as root (sudo ${0##*/} …)"
}

# --- changing ---------------------------------------------------------------------------------

# change WHAT COMMAND…: tell, and do it unless this is a dry run. WHAT begins with a verb.
change() {
    local what=$1
    shift
    CHANGES=$((CHANGES + 1))
    if [ "$DRY_RUN" = 1 ]; then
        say "  would $what"
        return
    fi
    say "  $what"
    "$@" >"$SCRATCH/output" 2>&1 || {
        tail -n 30 "$SCRATCH/output" >&2
        failed "could not $what"
    }
}

# Files written between `begin` and `commit` are restored when something fails in between.
begin() { UNDO=() UNDOABLE=1; }
commit() { UNDO=() UNDOABLE=0; }

remember() {
    local kept
    [ "$UNDOABLE" = 1 ] || return 0
    kept=$(mktemp -u "$SCRATCH/kept.XXXXXX")
    if [ -e "$1" ] || [ -L "$1" ]; then cp -a "$1" "$kept"; fi
    UNDO+=("$1" "$kept")
}

roll_back() {
    local index path kept
    for ((index = ${#UNDO[@]} - 2; index >= 0; index -= 2)); do
        path=${UNDO[index]} kept=${UNDO[index + 1]}
        rm -f "$path"
        if [ -e "$kept" ] || [ -L "$kept" ]; then cp -a "$kept" "$path"; fi
        say "  took back: $path"
    done
    commit
}

# put PATH MODE OWNER:GROUP <CONTENT: a file, whole or not at all. True if it changed.
put() {
    local path=$1 mode=$2 owner=$3 new="$SCRATCH/new" fresh
    cat >"$new"
    if [ -f "$path" ] && [ ! -L "$path" ] && cmp -s "$new" "$path"; then
        own "$path" "$mode" "$owner"
        return
    fi
    CHANGES=$((CHANGES + 1))
    if [ "$DRY_RUN" = 1 ]; then
        say "  would write $path"
        # Passwords are nobody's business.
        [[ $mode = *00 ]] || diff -u "$path" "$new" 2>/dev/null | sed -n '3,$ s/^/    /p' || true
        return
    fi
    say "  write $path"
    remember "$path"
    fresh=$(mktemp "${path%/*}/.ludwig-new.XXXXXX")
    cat "$new" >"$fresh"
    chown "$owner" "$fresh"
    chmod "$mode" "$fresh"
    mv -fT "$fresh" "$path"
}

# own PATH MODE OWNER:GROUP
own() {
    local is wanted
    is=$(stat -c '%a %U:%G' "$1")
    wanted="$(printf '%o' "$((8#$2))") $3"
    [ "$is" != "$wanted" ] || return 0
    change "make $1 $wanted (was $is)" set_owner "$@"
}

# Commands of `change` say && : a failure in them is looked at only at the end.
set_owner() {
    chown -h "$3" "$1" && chmod "$2" "$1"
}

# folder PATH MODE OWNER:GROUP
folder() {
    if [ -L "$1" ] || { [ -e "$1" ] && [ ! -d "$1" ]; }; then
        REMEDY="Look at what it is and move it away."
        failed "$1 is not a folder"
    fi
    if [ -d "$1" ]; then
        own "$@"
    else
        change "make folder $1" make_folder "$@"
    fi
}

make_folder() {
    mkdir -p "$1" && set_owner "$@"
}

# remove PATH…: files, links, folders with all that is in them.
remove() {
    local path
    for path in "$@"; do
        if [ -e "$path" ] || [ -L "$path" ]; then
            change "remove $path" rm -rf --one-file-system "$path"
        fi
    done
}

# remove_empty PATH: a folder, if nothing is in it.
remove_empty() {
    if [ -d "$1" ] && [ -z "$(ls -A "$1")" ]; then
        change "remove the empty folder $1" rmdir "$1"
    fi
}

# --- accounts ---------------------------------------------------------------------------------

# What we created is written down: uninstalling removes nothing that was there before.
record() {
    [ "$DRY_RUN" = 0 ] || return 0
    mkdir -p "$ETC"
    grep -qxF "$*" "$CREATED" 2>/dev/null || printf '%s\n' "$*" >>"$CREATED"
}

was_created() { grep -qxF "$*" "$CREATED" 2>/dev/null; }

group() {
    getent group "$1" >/dev/null && return
    change "create group $1" groupadd --system "$1"
    record group "$1"
}

# account NAME HOME GROUP: a system account without a shell and without a password.
account() {
    getent passwd "$1" >/dev/null && return
    change "create account $1" make_account "$@"
    record user "$1"
}

make_account() {
    useradd --system --no-create-home --home-dir "$2" --gid "$3" \
        --shell /usr/sbin/nologin --comment "Ludwig" "$1" &&
        # No password will do; but "locked" would lock out keys, too, where sshd does without PAM.
        usermod -p '*' "$1"
}

# member GROUP NAME
member() {
    # Only in a dry run: an account is made with its group.
    getent passwd "$2" >/dev/null || return 0
    id -nG "$2" 2>/dev/null | tr ' ' '\n' | grep -qxF "$1" && return
    change "add $2 to group $1" gpasswd --add "$2" "$1"
}

# A login leaves a process of systemd's behind for a while. We made the account: all its processes
# are of its SFTP sessions.
end_account() {
    loginctl terminate-user "$1" 2>/dev/null
    pkill -KILL -u "$1"
    for _ in $(seq 50); do
        pgrep -u "$1" >/dev/null || break
        sleep 0.1
    done
    userdel "$1"
}

remove_accounts() {
    local kind name
    [ -f "$CREATED" ] || return 0
    while read -r kind name; do
        if [ "$kind" = user ] && getent passwd "$name" >/dev/null; then
            change "remove account $name" end_account "$name"
        fi
    done <"$CREATED"
    while read -r kind name; do
        if [ "$kind" = group ] && getent group "$name" >/dev/null; then
            change "remove group $name" groupdel "$name"
        fi
    done <"$CREATED"
}

# --- the system -------------------------------------------------------------------------------

has_systemd() { [ -d /run/systemd/system ]; }

# check_units PATH…: systemd has nothing to say about these units (what it says about others is theirs).
check_units() {
    local path
    [ "$DRY_RUN" = 0 ] || return 0
    systemd-analyze verify --man=no "$@" 2>"$SCRATCH/errors" || true
    for path in "$@"; do
        if grep -F "${path##*/}" "$SCRATCH/errors" >&2; then
            REMEDY="Is this systemd very old (systemctl --version)? Then tell us."
            failed "systemd does not accept ${path##*/}"
        fi
    done
}

# packages NAME…: Debian packages that must be there.
packages() {
    local name missing=()
    for name in "$@"; do
        dpkg-query -W -f '${Status}\n' "$name" 2>/dev/null | grep -q '^install ok installed' ||
            missing+=("$name")
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    REMEDY="apt-get install ${missing[*]}"
    [ "$PACKAGES_ALLOWED" = 1 ] || failed "missing: ${missing[*]} (and --no-packages was given)"
    change "install packages ${missing[*]}" install_packages "${missing[@]}"
}

install_packages() {
    apt-get install -q -y --no-install-recommends "$@" || {
        apt-get update -q
        apt-get install -q -y --no-install-recommends "$@"
    }
}

# fill TEMPLATE NAME=VALUE…: $FILLED becomes the template with every @NAME@ replaced, without the
# comments that are about the template (##).
FILLED=$SCRATCH/filled
fill() {
    local text pair
    text=$(sed '/^##/d' "$HERE/templates/$1")
    shift
    for pair in "$@"; do
        text=${text//"@${pair%%=*}@"/${pair#*=}}
    done
    [[ ! $text =~ @[A-Z_]+@ ]] || failed "nothing was given for ${BASH_REMATCH[0]} of a template"
    printf '%s\n' "$text" >"$FILLED"
}
