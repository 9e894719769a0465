#!/usr/bin/env bash
# Makes this machine a node of the lab: a jailed SFTP inbox, the shared drive, Ludwig's agent as a
# service. Run it again whenever you like; running tasks are left alone.
#
#   sudo deploy/install-node.sh --drive smb://fileserver/research_data --password node.password \
#       --keys keys/ --job-python /opt/ml/bin/python
#
# The drive
#   --drive URL           smb://server[:port]/share[/folder], or the path of a folder that this
#                         machine mounts already
#   --mount PATH          where to mount it (default: /media/research_data)
#   --no-mount            do not mount it: the agent speaks SMB itself. The seed's kind of run.py,
#                         which opens files of the drive, is then refused
#   --drive-user NAME     the nodes' account on the file server (default: ludwig-node)
#   --password FILE       its password (the server's /etc/ludwig/node.password)
#   --encrypt             encrypt what goes to the file server
# Who may deliver work
#   --keys FOLDER         the members' public keys, NAME.pub each: exactly these are let in
#   --users               an SFTP account per member, each in a jail of its own (default: all
#                         members share the account "ludwig")
#   --adopt               use SFTP accounts that exist already; they will be good for SFTP only
# The agent
#   --hostname NAME       its name in the lab (default: this machine's)
#   --job-python PATH     the interpreter that runs jobs (default: /usr/bin/python3)
#   --slots gpus|N        one task per GPU, or N at once (default: gpus)
#   --set KEY=VALUE       a further line for worker.toml, in TOML; may be repeated
# Ludwig itself
#   --from FOLDER         a checkout (default: the one this script is in), or
#   --wheel FILE          a wheel
#   --wheelhouse FOLDER   take all other packages from here, download nothing
#   --python PATH         the agent's Python, 3.11 or newer (default: the first found)
#
#   --no-packages         install no Debian packages; stop if one is missing
#   --no-check            do not try the drive and the rest before starting the agent
#   --dry-run             say what would change, change nothing
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$HERE/lib.sh"
CREATED=$ETC/node.created
# shellcheck source-path=SCRIPTDIR source=release.sh
. "$HERE/release.sh"

DRIVE=""
MOUNT=/media/research_data
USE_MOUNT=1
DRIVE_USER=ludwig-node
PASSWORD=""
ENCRYPT=0
KEYS=""
PER_MEMBER=0
ADOPT=0
NODE=$(hostname -s)
JOB_PYTHON=/usr/bin/python3
SLOTS=gpus
EXTRA=""
CHECK=1

while [ $# -gt 0 ]; do
    case $1 in
    --drive) takes_value "$@" && DRIVE=$2 && shift ;;
    --mount) takes_value "$@" && MOUNT=$2 && shift ;;
    --no-mount) USE_MOUNT=0 ;;
    --drive-user) takes_value "$@" && DRIVE_USER=$2 && shift ;;
    --password) takes_value "$@" && PASSWORD=$2 && shift ;;
    --encrypt) ENCRYPT=1 ;;
    --keys) takes_value "$@" && KEYS=$2 && shift ;;
    --users) PER_MEMBER=1 ;;
    --adopt) ADOPT=1 ;;
    --hostname) takes_value "$@" && NODE=$2 && shift ;;
    --job-python) takes_value "$@" && JOB_PYTHON=$2 && shift ;;
    --slots) takes_value "$@" && SLOTS=$2 && shift ;;
    --set) takes_value "$@" && EXTRA+="${2%%=*} = ${2#*=}"$'\n' && shift ;;
    --from) takes_value "$@" && FROM=$2 && shift ;;
    --wheel) takes_value "$@" && WHEEL=$2 && shift ;;
    --wheelhouse) takes_value "$@" && WHEELHOUSE=$2 && shift ;;
    --python) takes_value "$@" && PYTHON=$2 && shift ;;
    --no-packages) PACKAGES_ALLOWED=0 ;;
    --no-check) CHECK=0 ;;
    --dry-run) DRY_RUN=1 ;;
    -h | --help) usage && exit 0 ;;
    *) wrong "unknown option '$1'" ;;
    esac
    shift
done

SERVICE_USER=ludwig-worker
SFTP_GROUP=ludwig-sftp
JAILS=/var/sftp
INBOX=$JAILS/ludwig
WORK=/var/lib/ludwig
OPT=/opt/ludwig
UNITS=/etc/systemd/system
DROP_IN=/etc/ssh/sshd_config.d/50-ludwig.conf
PORT=""
WHAT=""

need_root
[ -n "$DRIVE" ] || wrong "--drive is missing"
if [[ $DRIVE =~ ^smb://([a-zA-Z0-9._-]+)(:([0-9]+))?(/[a-zA-Z0-9._/-]+)$ ]]; then
    WHAT="//${BASH_REMATCH[1]}${BASH_REMATCH[4]%/}" PORT=${BASH_REMATCH[3]}
    if [ ! -s "${PASSWORD:-/etc/ludwig/drive.password}" ]; then
        wrong "--password FILE: the password of $DRIVE_USER on the file server is needed"
    fi
else
    check_path --drive "$DRIVE"
    USE_MOUNT=0
fi
check_path --mount "$MOUNT"
check_name --drive-user "$DRIVE_USER"
check_name --hostname "$NODE"
check_path --job-python "$JOB_PYTHON"
[[ $SLOTS = gpus || $SLOTS =~ ^[1-9][0-9]*$ ]] || wrong "--slots '$SLOTS': gpus, or a number"
[ -z "$KEYS" ] || [ -d "$KEYS" ] || wrong "--keys '$KEYS': no such folder"
check_release_options

# shellcheck source-path=SCRIPTDIR source=node-inbox.sh
. "$HERE/node-inbox.sh"
# shellcheck source-path=SCRIPTDIR source=node-drive.sh
. "$HERE/node-drive.sh"
# shellcheck source-path=SCRIPTDIR source=node-agent.sh
. "$HERE/node-agent.sh"

step "looking at this machine" "This is for Debian and Ubuntu with systemd."
command -v apt-get >/dev/null || failed "there is no apt-get"
command -v systemctl >/dev/null || failed "there is no systemd"
packages openssh-server python3-venv
[ "$USE_MOUNT" = 0 ] || packages cifs-utils
[ -x "$JOB_PYTHON" ] || {
    REMEDY="Install the lab's Python there, or say --job-python."
    failed "there is no $JOB_PYTHON"
}
REMEDY="Install python3.11 or newer and say --python PATH; on Ubuntu 22.04: apt-get install python3.11-venv"
find_python

step "making accounts" "Look at the account in /etc/passwd; --adopt takes over existing SFTP accounts."
group "$SERVICE_USER"
group "$SFTP_GROUP"
account "$SERVICE_USER" "$WORK" "$SERVICE_USER"
gpu_groups
folder "$ETC" 0755 root:root
folder "$WORK" 0750 "$SERVICE_USER:$SERVICE_USER"

make_inbox
open_door
folder "$OPT" 0755 root:root
install_release "$OPT"
reach_drive
configure_agent
run_agent
finished
