#!/usr/bin/env bash
# Makes every check of the sources that needs no machine. Prints what is wrong; exits 1 if anything
# is.
#   tools/lint.sh [CHECK]...      CHECK: warnings format headers width length golf floors
#                               cppcheck scripts mutants words
# Without CHECK it makes all checks.
set -u
cd "$(dirname "$0")/.."
CC=${CC:-gcc}
bad=0

fail() { shown; echo "lint: $*"; bad=1; }

# Shows, on a terminal, one line that says what is checked now. Without words it erases the line.
shown() { [ ! -t 1 ] || printf '\r\033[K%.79s' "$*"; }

sources() {
	git ls-files -co --exclude-standard -- "$@" | while read -r f; do
		[ -f "$f" ] && echo "$f"
	done
}

# The tree is formatted by this version, which is Debian 12's. Other versions break some lines at
# other places.
FORMAT_VERSION=14

check_format() {
	format=$(command -v clang-format-$FORMAT_VERSION || echo clang-format)
	if [ "$("$format" --version | sed 's/.*version \([0-9]*\).*/\1/')" != $FORMAT_VERSION ]; then
		echo "lint: format is not checked: it needs clang-format $FORMAT_VERSION," \
			"and this is $("$format" --version)"
		return
	fi
	for f in $(sources '*.c' '*.h'); do
		shown "lint: format: $f"
		"$format" --style=file --dry-run -Werror "$f" >/dev/null 2>&1 ||
			fail "$f: not as .clang-format has it (clang-format -i $f)"
	done
}

# Checks that the compiler has no warning. This is built in a directory of its own, so that what
# `make` has built stays as it is. Only if make takes warnings for errors anyway, as `make check`
# does, the usual directory is used.
check_warnings() {
	dir=build/warnings
	[ -z "${WERROR:-}" ] || dir=build
	shown "lint: warnings: building"
	tools/lwip.sh build/lwip >/dev/null || fail "without lwIP netstack/ cannot be compiled"
	out=$(make -s -j2 B=$dir LWIP=build/lwip WERROR=-Werror \
		all unit-build $dir/sim $dir/machine-check sim-whole-build 2>&1 >/dev/null) ||
		fail "the compiler warns:"$'\n'"$(grep -m20 -E 'error|Error' <<<"$out")"
}

# Checks that each header compiles alone. The hypervisor's and the guest library's are compiled with
# their own flags.
check_headers() {
	tools/lwip.sh build/lwip >/dev/null || fail "without lwIP netstack/'s headers cannot be checked"
	for f in $(sources 'common/*.h' 'hv/*.h' 'include/*.h' 'drivers/*.h' 'boot/*.h' \
		'guestlib/*.h' 'netstack/*.h' 'tests/*.h'); do
		shown "lint: headers: $f"
		case $f in
		guestlib/no-libc/*) continue ;; # they are there to fail
		tests/whole/*/*) continue ;; # they take the place of others, and include these
		guestlib/*) inc="-Iinclude -Iguestlib/include -I. -ffreestanding -mgeneral-regs-only" ;;
		netstack/* | tests/unit/net_*) inc="-Iinclude -I. -Inetstack -Ibuild/lwip/src/include" ;;
		tests/*) inc="-Iinclude -Ihv -Iguestlib/include -Itests/sim -I. -D_GNU_SOURCE" ;;
		*) inc="-Iinclude -Ihv -I. -ffreestanding -mgeneral-regs-only" ;;
		esac
		# shellcheck disable=SC2086
		out=$($CC -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Wno-unused-function -Werror \
			$inc -fsyntax-only -x c - 2>&1 \
			<<<"#include \"$PWD/$f\"") || fail "$f does not compile alone: $(head -1 <<<"$out")"
	done
}

too_wide() { # COLUMNS FILES...
	columns=$1; shift
	sources "$@" | xargs awk -v max="$columns" '
		{ n = length($0); t = gsub(/\t/, ""); n += 3 * t }
		n > max { print FILENAME ":" FNR ": " n " columns" }'
}

check_width() {
	out=$(too_wide 100 '*.c' '*.h' '*.asm' '*.inc' '*.ld'
		too_wide 100 '*.py' '*.sh' '*.mk' Makefile)
	[ -z "$out" ] || fail "lines that are too long:"$'\n'"$out"
	out=$(sources '*.c' '*.h' '*.asm' '*.py' '*.sh' '*.md' '*.cfg' | xargs grep -nE '[[:space:]]+$')
	[ -z "$out" ] || fail "blanks at the end of lines:"$'\n'"$out"
}

# Checks the length of files. A longer file has more than one subject, and a reader cannot keep it
# in mind.
MAX_LINES=800

check_length() {
	out=$(sources '*.c' '*.h' '*.asm' '*.inc' | xargs awk -v max=$MAX_LINES '
		FNR == max + 1 { print FILENAME ": more than " max " lines" }')
	[ -z "$out" ] || fail "files that are too long, split them:"$'\n'"$out"
}

# Measures how hard the sources are to read, by room (tools/golf.py). It fails where a measure is
# beyond its limit.
check_golf() {
	python3 tools/golf.py || fail "harder to read than the limits of tools/golf.py allow"
}

# Checks the symbols of the image's objects, too, so these are built first.
check_floors() {
	make -s build/takt.elf >/dev/null ||
		fail "the image does not build, so its symbols cannot be checked"
	if out=$(python3 tools/floors.py); then
		[ -z "$out" ] ||
			echo "lint: floors: $(wc -l <<<"$out") findings of tools/floors.py do not fail as yet"
	else
		fail "dependencies that do not go down:"$'\n'"$out"
	fi
}

# These reports of cppcheck are no faults here:
# - uninitvar: a function fills the array, and cppcheck does not see it.
# - autoVariables: the pointer to a line is not used after the function.
# - nullPointerOutOfMemory: the code looks at the error instead.
# - subtractPointers: the two symbols are of one section.
# - normalCheckLevelMaxBranches: this is only a remark.
# - preprocessorErrorDirective: cppcheck does not find the headers of lwIP, which say its version.
SUPPRESS="missingIncludeSystem missingInclude unknownMacro comparePointers arrayIndexOutOfBoundsCond
	nullPointerArithmeticRedundantCheck subtractPointers normalCheckLevelMaxBranches
	autoVariables:hv/config.c uninitvar:hv/shell/host.c uninitvar:hv/config.c
	uninitvar:hv/virt/svm_run.c uninitvar:guestlib/store.c
	nullPointerOutOfMemory:guests/iodom.c preprocessorErrorDirective:netstack/lwip_private.h"

check_cppcheck() {
	# shellcheck disable=SC2046
	set -o pipefail
	cppcheck --std=c11 --language=c --enable=warning,portability --inline-suppr \
		--error-exitcode=1 -j2 \
		$(printf -- '--suppress=%s ' $SUPPRESS) --library=gnu \
		-Iinclude -Ihv -Iguestlib/include -I. -Inetstack \
		$(sources 'common/*.c' 'hv/*.c' 'netstack/*.c' 'drivers/*.c' 'guestlib/*.c' 'guests/*.c' \
			'tools/*.c') |
		while read -r line; do shown "lint: cppcheck: $line"; done || fail "cppcheck"
	set +o pipefail
}

check_scripts() {
	for f in $(sources '*.py'); do
		python3 -c "import ast,sys; ast.parse(open(sys.argv[1]).read())" "$f" || fail "$f"
	done
	for f in $(sources '*.sh') .ci/run; do bash -n "$f" || fail "$f"; done
}

# Finds faults of tests/mutants that cannot be made any more.
check_mutants() {
	python3 tools/faults.py || fail "a fault of the list no longer fits the sources"
	python3 tools/labs.py fit || fail "a lab no longer fits the sources"
}

# Finds what a published tree must not hold.
check_words() {
	out=$(sources | grep -v '^tools/lint.sh$' |
		xargs grep -nIE '(TODO|FIXME|XXX):|^(<<<<<<<|>>>>>>>) ')
	[ -z "$out" ] || fail "left-overs:"$'\n'"$out"
}

[ $# -gt 0 ] ||
	set -- warnings format headers width length golf floors cppcheck scripts mutants words
for what in "$@"; do shown "lint: $what"; "check_$what"; done
shown
[ $bad = 0 ] && echo "lint: clean ($*)"
exit $bad
