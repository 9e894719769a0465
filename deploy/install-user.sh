#!/usr/bin/env bash
# A node for those who are not root on it: the agent as a service of your own account, with an
# ordinary folder as its inbox. Read "Without root" in deploy/README.md first: there is no jail, and
# jobs run as you.
#
#   deploy/install-user.sh --drive smb://fileserver/research_data --password node.password
#
#   --drive URL           smb://server[:port]/share[/folder], or the path of a mounted folder
#   --drive-user NAME     the account on the file server (default: ludwig-node)
#   --password FILE       its password, kept in ~/.config/ludwig/worker.env
#   --inbox PATH          default: ~/ludwig-inbox
#   --hostname NAME       the node's name in the lab (default: this machine's)
#   --job-python PATH     the interpreter that runs jobs (default: /usr/bin/python3)
#   --slots gpus|N        one task per GPU, or N at once (default: gpus)
#   --set KEY=VALUE       a further line for worker.toml, in TOML; may be repeated
#   --from FOLDER | --wheel FILE, --wheelhouse FOLDER, --python PATH: see install-node.sh
#   --no-check            do not try the drive and the rest before starting the agent
#   --uninstall           remove all of it again
#   --dry-run             say what would change, change nothing
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$HERE/lib.sh"
# shellcheck source-path=SCRIPTDIR source=release.sh
. "$HERE/release.sh"

DRIVE=""
DRIVE_USER=ludwig-node
PASSWORD=""
INBOX=$HOME/ludwig-inbox
NODE=$(hostname -s)
JOB_PYTHON=/usr/bin/python3
SLOTS=gpus
EXTRA=""
CHECK=1
UNINSTALL=0

while [ $# -gt 0 ]; do
    case $1 in
    --drive) takes_value "$@" && DRIVE=$2 && shift ;;
    --drive-user) takes_value "$@" && DRIVE_USER=$2 && shift ;;
    --password) takes_value "$@" && PASSWORD=$2 && shift ;;
    --inbox) takes_value "$@" && INBOX=$2 && shift ;;
    --hostname) takes_value "$@" && NODE=$2 && shift ;;
    --job-python) takes_value "$@" && JOB_PYTHON=$2 && shift ;;
    --slots) takes_value "$@" && SLOTS=$2 && shift ;;
    --set) takes_value "$@" && EXTRA+="${2%%=*} = ${2#*=}"$'\n' && shift ;;
    --from) takes_value "$@" && FROM=$2 && shift ;;
    --wheel) takes_value "$@" && WHEEL=$2 && shift ;;
    --wheelhouse) takes_value "$@" && WHEELHOUSE=$2 && shift ;;
    --python) takes_value "$@" && PYTHON=$2 && shift ;;
    --no-check) CHECK=0 ;;
    --uninstall) UNINSTALL=1 ;;
    --dry-run) DRY_RUN=1 ;;
    -h | --help) usage && exit 0 ;;
    *) wrong "unknown option '$1'" ;;
    esac
    shift
done
[ "$(id -u)" != 0 ] || wrong "this is for an ordinary account; as root use install-node.sh"

OWNER=$(id -un):$(id -gn)
CONFIGS=$HOME/.config/ludwig
DATA=$HOME/.local/share/ludwig
UNIT=$HOME/.config/systemd/user/ludwig-worker.service

user_systemd() { systemctl --user show -P Version >/dev/null 2>&1; }

uninstall() {
    step "removing the agent" "systemctl --user status ludwig-worker"
    if [ -f "$UNIT" ] && user_systemd; then
        change "stop the agent; its tasks go on" systemctl --user disable -q --now ludwig-worker
    fi
    remove "$UNIT" "$DATA" "$CONFIGS/worker.toml" "$CONFIGS/worker.env"
    remove_empty "$CONFIGS"
    say "The inbox $INBOX is left to you."
    finished
}

configure() {
    step "configuring the agent" "Look at --set and the other options: ludwig-worker says what is wrong."
    local slots="slots = $SLOTS" user=""
    [ "$SLOTS" != gpus ] || slots='slots = "gpus"'
    [[ $DRIVE != smb://* ]] || user="user = \"$DRIVE_USER\""
    folder "$INBOX" 0700 "$OWNER"
    folder "$INBOX/sources" 0700 "$OWNER"
    folder "$INBOX/tickets" 0700 "$OWNER"
    folder "$DATA/work" 0700 "$OWNER"
    begin
    if [ -n "$PASSWORD" ]; then
        printf 'LUDWIG_SMB_PASSWORD="%s"\n' "$(head -n 1 "$PASSWORD" | sed 's/[\\"`$]/\\&/g')" >"$SCRATCH/env"
        put "$CONFIGS/worker.env" 0600 "$OWNER" <"$SCRATCH/env"
    fi
    fill worker.toml "HOSTNAME=$NODE" "INBOX=$INBOX" "WORK=$DATA/work" "PYTHON=$JOB_PYTHON" \
        "SLOTS=$slots" "EXTRA=$EXTRA" "URL=$DRIVE" "MOUNT=$user"
    put "$CONFIGS/worker.toml" 0600 "$OWNER" <"$FILLED"
    fill user.service "PROGRAM=$DATA/current/bin/ludwig-worker" "CONFIGS=$CONFIGS"
    put "$UNIT" 0644 "$OWNER" <"$FILLED"
    if [ "$DRY_RUN" = 0 ] && [ "$CHECK" = 1 ]; then check_agent; fi
    commit
}

check_agent() {
    local password=""
    [ -z "$PASSWORD" ] || password=$(head -n 1 "$PASSWORD")
    LUDWIG_SMB_PASSWORD=$password "$DATA/current/bin/ludwig-worker" check \
        --config "$CONFIGS/worker.toml" >"$SCRATCH/output" 2>&1 || {
        cat "$SCRATCH/output" >&2
        REMEDY="Repair what is BAD above; --no-check starts the agent all the same."
        failed "the agent could not work like this"
    }
    sed 's/^/  /' "$SCRATCH/output"
}

run_agent() {
    step "running the agent" "journalctl --user -u ludwig-worker"
    user_systemd || {
        warn "no systemd for this account here: log in at the machine (not with su) and run this again, or start it yourself: $DATA/current/bin/ludwig-worker run --config $CONFIGS/worker.toml"
        return 0
    }
    [ "$CHANGES" = "$1" ] || change "let systemd read its units again" systemctl --user daemon-reload
    systemctl --user is-enabled -q ludwig-worker 2>/dev/null ||
        change "start the agent with the first login" systemctl --user enable -q ludwig-worker
    if [ "$CHANGES" != "$1" ] || ! systemctl --user is-active -q ludwig-worker; then
        change "start the agent" systemctl --user restart ludwig-worker
    fi
    [ "$(loginctl show-user "$(id -un)" -P Linger 2>/dev/null)" = yes ] ||
        warn "the agent ends when you log out. Once: loginctl enable-linger (where the administrator allows it)"
}

if [ "$UNINSTALL" = 1 ]; then
    uninstall
    exit 0
fi
[ -n "$DRIVE" ] || wrong "--drive is missing"
if [[ $DRIVE != smb://* ]]; then
    check_path --drive "$DRIVE"
elif [ -z "$PASSWORD" ] && [ ! -f "$CONFIGS/worker.env" ]; then
    wrong "--password FILE is missing: the password of $DRIVE_USER on the file server"
fi
check_name --hostname "$NODE"
check_release_options
step "looking at this machine" "Ask the administrator for python3.11 and python3.11-venv, or bring your own (--python)."
find_python
folder "$CONFIGS" 0700 "$OWNER"
folder "$DATA" 0700 "$OWNER"
folder "${UNIT%/*}" 0755 "$OWNER"
BEFORE=$CHANGES
install_release "$DATA"
configure
run_agent "$BEFORE"
finished
