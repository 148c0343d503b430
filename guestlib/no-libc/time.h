/* Found instead of the C library's, which a guest does not have. */
#error "A guest has no C library: <guest/time.h> has the time, <guest/thread.h> sleep_ns()."
