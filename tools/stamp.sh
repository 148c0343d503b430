#!/bin/sh
# stamp.sh FILE TEXT: writes TEXT to FILE if FILE does not hold it yet. What depends on FILE is then
# built anew. TEXT is what decides what is built: compiler flags, or the objects of a program. The
# times of sources and objects alone cannot show that a flag changed or that an object is gone.
mkdir -p "$(dirname "$1")"
[ "$(cat "$1" 2>/dev/null)" = "$2" ] || echo "$2" >"$1"
