# Puts the counting of instructions into a file of the compiler's assembly. The compiler has put a
# call at the beginning of each basic block, a piece of code that is executed from one end to the
# other. Here each call becomes the code that counts the instructions of its block:
#
#   of=guest  in a guest, which keeps what is left of its time in R15 (guest/start.c)
#   of=hv     in the hypervisor, which adds up what it owes in whole_due (engine.c)
#
# The compiler assumes that a call changes RAX and the flags, so this code may change them. A block
# that calls trace_write() is not counted: on the machine that is simulated, tracing is off.

function count() {
    if (of == "guest") {
        print "\timulq\t$" instructions ", whole_per_instruction(%rip), %rax"
        print "\tsubq\t%rax, %r15"
        print "\tjns\t771f"
        print "\tcall\twhole_out_of_time"
    } else {
        print "\timulq\t$" instructions ", whole_instruction(%rip), %rax"
        print "\taddq\t%rax, whole_due(%rip)"
        print "\tjs\t771f"
        print "\tcall\twhole_stop_due"
    }
    print "771:"
}

# Prints the lines of the block that ends here, behind the code that counts them.
function end_block(   i) {
    if (!in_block) return
    if (!traces) count()
    for (i = 0; i < lines; i++) print line[i]
    in_block = traces = lines = instructions = 0
}

/^\tcall\t__sanitizer_cov_trace_pc(@PLT)?$/ { end_block(); in_block = 1; next }
/^\t\.(cfi_endproc|section|text)/           { end_block() }
!in_block                                   { print; next }
/^\tcall\ttrace_write(@PLT)?$/              { traces = 1 }
/^\t[a-z]/                                  { instructions++ }
                                            { line[lines++] = $0 }
END                                         { end_block() }
