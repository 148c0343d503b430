/* Found instead of the C library's, which a guest does not have. */
#error "A guest has no C library: <guest/printf.h> has printf(), <guest/disk.h> a disk."
