/* Found instead of the C library's, which a guest does not have. */
#error "A guest has no C library: functions return -ENOMEM and the like (<takt/errno.h>)."
