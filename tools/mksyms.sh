#!/bin/sh
# mksyms.sh IMAGE.elf > symbols.asm: prints the image's functions, in order of address, as the table
# that hv/x86/trap.c searches.
nm -n "$1" | awk '
    $2 ~ /^[Tt]$/ && $3 !~ /^(trap_[0-9]+$|\.|image_)/ && $1 ~ /^ffffffff/ {
        addr[n] = $1
        name[n++] = $3
    }
    END {
        print "section .symtab_image progbits alloc noexec nowrite align=8"
        print "global symtab, symtab_count"
        print "symtab_count: dq " n
        print "symtab:"
        for (i = 0; i < n; i++) print "dq 0x" addr[i] ", n" i
        for (i = 0; i < n; i++) print "n" i ": db `" name[i] "`, 0"
    }'
