; memory: 8
; 32-bit paging and PAE paging: what Takt does by reading the guest's memory (the bytes of an
; instruction, the data of string I/O, a device's registers) works under both, also at addresses
; that are not physical ones. A reserved bit in a PDPTE is #GP.

ALIAS   equ 0x00800000          ; here the first 4 MiB appear once more, in 4 KiB pages
LAPIC   equ 0xfee00000

P       equ 1
W       equ 2
PS      equ 0x80

%include "kernel.inc"

        mov     edi, [ebx + 16]         ; the command line
        call    look_for_qemu
        mov     [on_qemu], eax
        mov     eax, 0x40000000
        cpuid
        mov     esi, text.no_takt
        cmp     ebx, 'Takt'
        jne     skip
        mov     eax, 0x40000001
        cpuid
        and     ebx, 1                  ; TAKT_FEAT_VMMCALL
        mov     [vmmcall_here], ebx

        call    make_idt
        mov     dword [stage], text.none
        call    exits

        ; ---- 32-bit paging: 4 MiB pages, and a table of 4 KiB pages for the alias ----
        mov     dword [table], P | W | PS
        mov     dword [table + (LAPIC >> 22) * 4], (LAPIC & 0xffc00000) + P + W + PS
        mov     dword [table + (ALIAS >> 22) * 4], small + P + W
        xor     ecx, ecx
.small: mov     eax, ecx
        shl     eax, 12
        or      eax, P | W
        mov     [small + ecx * 4], eax
        inc     ecx
        cmp     ecx, 1024
        jb      .small
        mov     eax, cr4
        or      eax, 0x10               ; PSE
        mov     cr4, eax
        mov     eax, table
        mov     cr3, eax
        mov     eax, cr0
        or      eax, 0x80000000
        mov     cr0, eax
        mov     dword [stage], text.legacy
        call    exits
        mov     dword [stage], text.legacy_alias
        mov     eax, exits + ALIAS
        call    eax
        mov     eax, cr0
        and     eax, 0x7fffffff
        mov     cr0, eax

        ; ---- PAE: 2 MiB pages, and two tables for the alias ----
        mov     dword [pdpt], table + P
        mov     dword [pdpt + 3 * 8], table + 4096 + P
        mov     edi, table
        mov     ecx, 2 * 4096 / 4
        xor     eax, eax
        rep     stosd
        mov     dword [table], P | W | PS
        mov     dword [table + 8], 0x200000 + P + W + PS
        mov     dword [table + 4096 + (LAPIC >> 21 & 511) * 8], (LAPIC & 0xffe00000) + P + W + PS
        mov     dword [table + (ALIAS >> 21) * 8], small + P + W
        mov     dword [table + (ALIAS >> 21) * 8 + 8], small + 4096 + P + W
        xor     ecx, ecx
.pae:   mov     eax, ecx
        shl     eax, 12
        or      eax, P | W
        mov     [small + ecx * 8], eax
        mov     dword [small + ecx * 8 + 4], 0
        inc     ecx
        cmp     ecx, 1024
        jb      .pae
        mov     eax, cr4
        or      eax, 0x20               ; PAE
        mov     cr4, eax
        mov     eax, pdpt
        mov     cr3, eax
        mov     eax, cr0
        or      eax, 0x80000000
        mov     cr0, eax
        mov     dword [stage], text.pae
        call    exits
        mov     dword [stage], text.pae_alias
        mov     eax, exits + ALIAS
        call    eax

        ; ---- a reserved bit in a PDPTE (SDM 3A 4.4.1): MOV to CR3 is #GP. QEMU's CPU
        ; takes it.
        cmp     dword [on_qemu], 0
        jne     .done
        mov     dword [pdpt + 8], P | W
        mov     eax, pdpt
        mov     dword [resume], .after
        mov     cr3, eax
.after: mov     esi, text.pdpte
        cmp     dword [gps], 1
        jne     fail
        mov     dword [pdpt + 8], 0
        mov     cr3, eax
        cmp     dword [gps], 1
        jne     fail
.done:
        mov     esi, text.success
        call    print
        mov     eax, 0
        jmp     leave_vm

; Everything that makes Takt look at this guest's memory. Uses absolute addresses for data only.
exits:
        mov     eax, 0x40000000
        db      0x2e, 0x0f, 0xa2        ; CS CPUID
        mov     esi, text.cpuid
        cmp     ebx, 'Takt'
        jne     near failed
        xor     eax, eax
        cmp     dword [vmmcall_here], 0
        je      .vmcall
        vmmcall
        jmp     .called
.vmcall:
        vmcall
.called:
        mov     esi, text.hypercall
        cmp     eax, 0x00010000
        jne     near failed
        xor     eax, eax
        in      al, 0x80
        mov     esi, text.port
        cmp     eax, 0xff
        jne     near failed
        mov     eax, [LAPIC + 0x30]
        mov     esi, text.mmio
        test    eax, eax
        jz      near failed
        mov     dword [buffer], 0
        mov     edi, buffer
        mov     ecx, 3
        mov     edx, 0x5e0
        rep     insb
        mov     esi, text.string
        cmp     dword [buffer], 0x00ffffff
        jne     near failed
        ret

; ESI: what; [stage]: where.
failed: push    esi
        mov     esi, text.failure
        call    print
        mov     esi, [stage]
        call    print
        pop     esi
        call    print
        mov     eax, 3
        jmp     leave_vm

fail:   mov     dword [stage], text.none
        jmp     failed

skip:   push    esi
        mov     esi, text.skip
        call    print
        pop     esi
        call    print
        mov     eax, 1

        jmp     leave_vm

make_idt:
        mov     eax, on_gp
        mov     [idt + 13 * 8], ax
        mov     word [idt + 13 * 8 + 2], cs
        mov     word [idt + 13 * 8 + 4], 0x8e00
        shr     eax, 16
        mov     [idt + 13 * 8 + 6], ax
        lidt    [idtr]
        ; CS as the loader left it may be in a table that is gone: load our own.
        lgdt    [gdtr]
        jmp     8:.in
.in:    mov     ax, 16
        mov     ds, ax
        mov     es, ax
        mov     ss, ax
        mov     word [idt + 13 * 8 + 2], 8
        ret

on_gp:  inc     dword [gps]
        push    eax
        mov     eax, [resume]
        mov     [esp + 8], eax
        pop     eax
        add     esp, 4                  ; the error code
        iret

section .rodata
align 8
gdt:    dq      0, 0x00cf9b000000ffff, 0x00cf93000000ffff
gdtr:   dw      gdtr - gdt - 1
        dd      gdt
idtr:   dw      14 * 8 - 1
        dd      idt
text:
.no_takt:       db "needs Takt", 10, 0
.none:          db "", 0
.legacy:        db "32-bit paging: ", 0
.legacy_alias:  db "32-bit paging, at an alias: ", 0
.pae:           db "PAE paging: ", 0
.pae_alias:     db "PAE paging, at an alias: ", 0
.cpuid:         db "CPUID", 10, 0
.hypercall:     db "hypercall", 10, 0
.port:          db "IN", 10, 0
.mmio:          db "the LAPIC's version", 10, 0
.string:        db "INS", 10, 0
.pdpte:         db "a reserved bit in a PDPTE is no #GP", 10, 0
.success:       db "RESULT: SUCCESS 32-bit and PAE paging", 10, 0
.failure:       db "RESULT: FAILURE ", 0
.skip:          db "RESULT: SKIP ", 0

section .bss nobits alloc write align=4096
table:  resb    2 * 4096
small:  resb    2 * 4096
pdpt:   resb    4096
idt:    resb    14 * 8
stage:          resd 1
vmmcall_here:   resd 1
on_qemu:        resd 1
gps:            resd 1
resume:         resd 1
buffer:         resd 1
stack:  resb    4096
stack_top:
