/* Found instead of the C library's, which a guest does not have. */
#error "A guest has no C library: guest_panic() of <guest/guest.h> ends it with a sentence."
