; memory: 8
; A store changes the instruction behind it, which must then run as it was changed (SDM 3A 12.1.3).
; The store goes to the address of the instruction or to an alias, and the CPU knows the translation
; of that address already or not.

PAGES   equ 512                 ; that are mapped, from address 0 on
; Here they appear once more. The low bits of a page's number choose its place in a TLB; those of
; the alias that is used differ from those of all other pages that are used.
ALIAS   equ 0x0080b000

P       equ 1
W       equ 2
DIRTY   equ 0x40

%include "kernel.inc"

        mov     edi, [ebx + 16]         ; the command line
        call    look_for_qemu
        mov     [on_qemu], eax
        mov     dword [directory], table + P + W
        mov     dword [directory + (ALIAS >> 22) * 4], alias_table + P + W
        xor     ecx, ecx
.page:  mov     eax, ecx
        shl     eax, 12
        or      eax, P | W
        mov     [table + ecx * 4], eax
        mov     [alias_table + (ALIAS >> 12 & 1023) * 4 + ecx * 4], eax
        inc     ecx
        cmp     ecx, PAGES
        jb      .page
        mov     eax, directory
        mov     cr3, eax
        mov     eax, cr0
        or      eax, 0x80000000
        mov     cr0, eax

        ; The CPU knows the translation, because of an earlier store to the page.
        xor     edi, edi
        mov     [scratch], edi
        mov     esi, text.same
        call    rewrite
        mov     edi, ALIAS
        mov     [scratch + ALIAS], edi
        mov     esi, text.alias
        call    rewrite

        ; It does not. QEMU's CPU then runs the old instruction if paging is nested (docs/linux.md).
        cmp     dword [on_qemu], 0
        jne     .done
        xor     edi, edi
        call    forget
        mov     esi, text.same_new
        call    rewrite
        mov     edi, ALIAS
        call    forget
        mov     esi, text.alias_new
        call    rewrite
.done:
        mov     esi, text.success
        call    print
        mov     eax, 0
        jmp     leave_vm

; Empties the TLB. The next store to the page, through either mapping, has to set DIRTY, so it needs
; a walk of the tables even if code of the page has run since.
forget: mov     ecx, load
        shr     ecx, 12
        and     dword [table + ecx * 4], ~DIRTY
        and     dword [alias_table + (ALIAS >> 12 & 1023) * 4 + ecx * 4], ~DIRTY
        mov     eax, cr3
        mov     cr3, eax
        ret

; EDI: how far from the instruction the store goes; ESI: what is tried. Each call stores another
; number.
rewrite:
        inc     dword [number]
        mov     eax, [number]
        call    load
        cmp     ebx, eax
        jne     fail
        ret

fail:   push    esi
        mov     esi, text.failure
        call    print
        pop     esi
        call    print
        mov     eax, 3
        jmp     leave_vm

; A page of its own. Stores EAX into the instruction at .next, which loads it into EBX.
        align   4096
load:   mov     [edi + .next + 1], eax
.next:  mov     ebx, 0
        ret
scratch:
        dd      0
        align   4096

section .rodata
text:
.same:          db "its own address, written before", 10, 0
.alias:         db "an alias, written before", 10, 0
.same_new:      db "its own address, not written before", 10, 0
.alias_new:     db "an alias, not written before", 10, 0
.success:       db "RESULT: SUCCESS an instruction that has just been changed", 10, 0
.failure:       db "RESULT: FAILURE the old instruction ran: ", 0

section .bss nobits alloc write align=4096
directory:      resb 4096
table:          resb 4096
alias_table:    resb 4096
number:         resd 1
on_qemu:        resd 1
stack:  resb    4096
stack_top:
