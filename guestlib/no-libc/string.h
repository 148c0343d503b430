/* Found instead of the C library's, which a guest does not have. */
#error "A guest has no C library: <guest/string.h> has memcpy(), strlen() and the like."
