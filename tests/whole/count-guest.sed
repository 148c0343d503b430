# Puts the counting of a basic block of a guest into the code itself, in place of the call that the
# compiler makes. guest/start.c explains R15.
s/^\tcall\t__sanitizer_cov_trace_pc\(@PLT\)\?$/\
\tsubq\twhole_per_block(%rip), %r15\
\tjns\t771f\
\tcall\twhole_out_of_time\
771:/
