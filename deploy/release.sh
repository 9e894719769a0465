# shellcheck shell=bash
# Ludwig in an environment of its own. Sourced by install-node.sh and install-user.sh.
#
#   <root>/releases/<id>/   a virtual environment; the id says what is in it
#   <root>/current          the one in use: switched by one rename, and back if it does not start
#
# Only what an agent needs is installed (node-requirements.txt), so a node has no pandas of Ludwig's.
# The release before stays, for going back. Jobs do not run in it: they have their own interpreter.

WHEEL=""
FROM=""
WHEELHOUSE=""
PYTHON=""
PREVIOUS=""

check_release_options() {
    [ -z "$WHEEL" ] || [ -f "$WHEEL" ] || wrong "--wheel '$WHEEL': no such file"
    [ -z "$WHEELHOUSE" ] || [ -d "$WHEELHOUSE" ] || wrong "--wheelhouse '$WHEELHOUSE': no such folder"
    # pip builds elsewhere.
    [ -z "$WHEELHOUSE" ] || WHEELHOUSE=$(realpath "$WHEELHOUSE")
    if [ -z "$WHEEL" ] && [ -z "$FROM" ]; then FROM=$(dirname "$HERE"); fi
    [ -n "$WHEEL" ] || [ -f "$FROM/pyproject.toml" ] ||
        wrong "'$FROM' is not a checkout of Ludwig: say --from FOLDER or --wheel FILE"
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    if [ -n "$PYTHON" ]; then
        new_enough "$PYTHON" || failed "--python $PYTHON is not Python 3.11 or newer"
        return
    fi
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        PYTHON=$(command -v "$candidate" || true)
        if [ -n "$PYTHON" ] && new_enough "$PYTHON"; then return; fi
    done
    PYTHON=""
    failed "the agent needs Python 3.11 or newer, and there is none (jobs may use an older one)"
}

# The lines of Ludwig's own requirements whose names are in the file.
BOUNDS='
import re, sys
from importlib.metadata import requires
names = {line.strip().lower() for line in open(sys.argv[1]) if line[:1] not in "#\n"}
found = {}
for line in requires("ludwigcluster"):
    text = line.partition(";")[0].strip()
    name = re.match(r"[\w.-]+", text)[0].lower()
    if name in names:
        found[name] = text
missing = names - set(found)
if missing:
    sys.exit(f"this Ludwig does not ask for {sorted(missing)}: is it as old or new as this script?")
print(*found.values(), sep="\n")
'

# What makes two installations the same.
release_id() {
    {
        "$PYTHON" -c 'import sys; print(sys.version)'
        cat "$HERE/node-requirements.txt"
        if [ -n "$WHEEL" ]; then
            sha256sum <"$WHEEL"
        else
            cd "$FROM" || exit
            find pyproject.toml ludwig client worker -type f ! -name '*.pyc' -print0 | LC_ALL=C sort -z |
                xargs -0 sha256sum
        fi
    } | sha256sum | cut -c 1-12
}

# install_release ROOT: build what is missing, and switch to it. $PREVIOUS is what was in use.
install_release() {
    local root=$1 id
    step "installing Ludwig below $root" \
        "Can this machine download from PyPI? If not, give --wheelhouse (see deploy/README.md)."
    PREVIOUS=$(readlink "$root/current" || true)
    id=$(release_id)
    [ -f "$root/releases/$id/complete" ] || change "build release $id" build_release "$root/releases/$id"
    [ "$PREVIOUS" = "releases/$id" ] || change "switch to release $id" switch_release "$root" "releases/$id"
    prune_releases "$root" "releases/$id"
}

build_release() {
    local target=$1 source=$WHEEL pip
    rm -rf "$target" && mkdir -p "${target%/*}" && "$PYTHON" -m venv "$target" || return
    pip=("$target/bin/python" -m pip --quiet --no-input --disable-pip-version-check install)
    [ -z "$WHEELHOUSE" ] || pip+=(--no-index --find-links "$WHEELHOUSE")
    if [ -z "$source" ]; then
        source=$SCRATCH/source # building leaves traces: not in somebody's checkout
        rm -rf "$source" && mkdir "$source" &&
            tar -C "$FROM" -c pyproject.toml README.md LICENSE ludwig client worker |
            tar -C "$source" -x || return
    fi
    "${pip[@]}" --no-deps "$source" &&
        "$target/bin/python" -c "$BOUNDS" "$HERE/node-requirements.txt" >"$SCRATCH/needs" &&
        "${pip[@]}" --requirement "$SCRATCH/needs" &&
        "$target/bin/ludwig-worker" --help >/dev/null &&
        touch "$target/complete"
}

switch_release() {
    rm -f "$1/.current" && ln -s "$2" "$1/.current" && mv -fT "$1/.current" "$1/current"
}

# The one in use and the one before stay.
prune_releases() {
    local found
    for found in "$1"/releases/*; do
        case "releases/${found##*/}" in
        "$2" | "$PREVIOUS") ;;
        *) [ ! -e "$found" ] || [ "$PREVIOUS" = "$2" ] || remove "$found" ;;
        esac
    done
}
