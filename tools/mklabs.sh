#!/usr/bin/env bash
# Writes the course: a directory with the tree of each lab, and a page that lists them.
#   tools/mklabs.sh OUT
set -eu
[ $# = 1 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
exec "${PYTHON:-python3}" "$(dirname "$0")/labs.py" course "$1"
