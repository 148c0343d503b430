#include "lib/version.h"

const char version_commit[] = "0123456789+", version_date[] = "2026-01-31";
