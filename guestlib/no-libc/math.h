/* Found instead of the C library's, which a guest does not have. */
#error "A guest has no floating point: compute with integers, such as thousandths."
