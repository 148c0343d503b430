/* Which Takt this is. The two texts are those of tools/version.sh, which make runs for each image. */
#ifndef HV_LIB_VERSION_H
#define HV_LIB_VERSION_H

#define TAKT_VERSION "0.1"

/* The commit, with a "+" behind it if files had been changed since; and the commit's date, as in
 * 2026-11-23. Both are "unknown" if the image was built outside of a git tree. */
extern const char version_commit[], version_date[];

#endif
