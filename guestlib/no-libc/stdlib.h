/* Found instead of the C library's, which a guest does not have. */
#error "A guest has no C library: <guest/mem.h> has malloc(), <guest/sort.h> sorts."
