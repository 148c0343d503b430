/* Which version of Takt this is. tools/version.sh, which make runs for each image, writes the
 * two texts. */
#ifndef HV_LIB_VERSION_H
#define HV_LIB_VERSION_H

#define TAKT_VERSION "0.1"

/* The commit, with a "+" behind it if files had changed since then, and the date of the commit,
 * such as 2026-11-23. Both are "unknown" if the image was not built in a git tree. */
extern const char version_commit[], version_date[];

#endif
