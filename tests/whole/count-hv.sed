# Puts the counting of a basic block of hv/ into the code itself, in place of the call that the
# compiler makes. After it the compiler takes RAX and the flags for changed, as after any call.
# engine.c explains whole_due.
s/^\tcall\t__sanitizer_cov_trace_pc\(@PLT\)\?$/\
\tmovq\twhole_block(%rip), %rax\
\taddq\t%rax, whole_due(%rip)\
\tjs\t771f\
\tcall\twhole_stop_due\
771:/
