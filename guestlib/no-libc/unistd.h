/* Found instead of the C library's, which a guest does not have. */
#error "A guest has no C library: docs/writing-a-guest.md lists what there is instead."
