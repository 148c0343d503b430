#!/usr/bin/env bash
# version.sh: prints the C source that tells the image which commit it was built from
# (hv/lib/version.h). The date is the commit's, not today's, so that building the same commit again
# gives the same image. A "+" behind the commit means that files had been changed since that
# commit.
cd "$(dirname "$0")/.." || exit 1
commit=$(git describe --always --exclude='*' --abbrev=10 --dirty=+ 2>/dev/null) || commit=unknown
date=$(git log -1 --format=%cs 2>/dev/null) || date=unknown
cat <<END
#include "lib/version.h"

const char version_commit[] = "$commit";
const char version_date[] = "$date";
END
