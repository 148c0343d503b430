; The start of the first vCPU (PVH: 32-bit, flat segments, paging off, EBX points to
; hvm_start_info), and of the other vCPUs (real mode at AP_PAGE). Students of lab 1 write what is
; between `begin` and `end` (labs/1).

AP_PAGE     equ 0x8000          ; also in vcpu.c
SEL_CODE64  equ 0x08
SEL_DATA    equ 0x10
SEL_CODE32  equ 0x18

CR0_BITS    equ 0x80010033      ; PG WP NE ET MP PE
CR4_BITS    equ 0x00000620      ; PAE OSFXSR OSXMMEXCPT
MSR_EFER    equ 0xc0000080
EFER_LME    equ 0x100

extern guest_start, vcpu_main
global boot_guard, boot_stack, start32, ap_start, ap_end, ap_stack, ap_vcpu, boot_pml4

; The entry note (Xen, docs/misc/pvh.pandoc); the descriptor is 64 bits wide in a 64-bit container.
section .note.pvh note alloc noexec nowrite align=4
; begin note
        dd 4, 8, 18             ; XEN_ELFNOTE_PHYS32_ENTRY
        db "Xen", 0
        dq start32
; end note

section .text.start progbits alloc exec nowrite align=16
bits 32
start32:
        cli
        cld
        mov     esp, boot_stack_top
        mov     esi, ebx

        ; One to one, 4 GiB in 2 MiB pages, for CPL 3 too; the top GiB, where devices are, uncached.
; begin tables
        mov     edi, boot_pd
        mov     eax, 0x87               ; PS U W P
        mov     ecx, 2048
.page:  mov     [edi], eax
        cmp     ecx, 512
        ja      .cached
        or      dword [edi], 0x18       ; PCD PWT
.cached:
        add     edi, 8
        add     eax, 0x200000
        loop    .page
        mov     dword [boot_pml4], boot_pdpt + 7
        mov     eax, boot_pd + 7
        mov     edi, boot_pdpt
        mov     ecx, 4
.table: mov     [edi], eax
        add     edi, 8
        add     eax, 4096
        loop    .table
; end tables

        lgdt    [boot_gdtr]
        mov     ebp, start64
        ; fall through

; From 32-bit protected mode to the 64-bit code at EBP.
long_mode:
; begin mode
        mov     eax, CR4_BITS
        mov     cr4, eax
        mov     eax, boot_pml4
        mov     cr3, eax
        mov     ecx, MSR_EFER
        rdmsr
        or      eax, EFER_LME
        wrmsr
        mov     eax, CR0_BITS
        mov     cr0, eax
        jmp     SEL_CODE64:.in
; end mode
bits 64
.in:
        mov     ax, SEL_DATA
        mov     ds, ax
        mov     es, ax
        mov     ss, ax
        xor     eax, eax
        mov     fs, ax
        mov     gs, ax
        mov     ebp, ebp
        jmp     rbp

start64:
        mov     edi, esi
        xor     ebp, ebp
        call    guest_start

ap_start64:
        mov     rsp, [ap_stack]
        mov     rdi, [ap_vcpu]
        xor     ebp, ebp
        call    vcpu_main

; Copied to AP_PAGE; SIPI starts it with CS = AP_PAGE >> 4.
bits 16
ap_start:
        cli
        o32 lgdt [cs:ap_gdtr - ap_start]
        mov     eax, 0x11               ; ET PE
        mov     cr0, eax
        jmp     dword SEL_CODE32:AP_PAGE + .pm - ap_start
bits 32
.pm:
        mov     ax, SEL_DATA
        mov     ds, ax
        mov     es, ax
        mov     ss, ax
        mov     ebp, ap_start64
        mov     eax, long_mode
        jmp     eax
align 4
ap_gdtr:
        dw      boot_gdt_end - boot_gdt - 1
        dd      boot_gdt
ap_end:

section .rodata
align 8
boot_gdt:
        dq      0
        dq      0x00af9b000000ffff      ; 64-bit code
        dq      0x00cf93000000ffff      ; data
        dq      0x00cf9b000000ffff      ; 32-bit code
boot_gdt_end:
boot_gdtr:
        dw      boot_gdt_end - boot_gdt - 1
        dq      boot_gdt

section .data
ap_stack:       dq 0
ap_vcpu:        dq 0

section .bss nobits alloc write align=4096
boot_pml4:      resb 4096
boot_pdpt:      resb 4096
boot_pd:        resb 4 * 4096
boot_guard:     resb 4096               ; vcpu_init_first() takes it out of the mapping
boot_stack:     resb 16384              ; THREAD_STACK
boot_stack_top:
