; The road of an AP from its SIPI, in real mode at page P, to ap_main in 64-bit C. The code between trampoline
; and
; trampoline_end is copied to P; one AP takes it at a time.
%include "asm_offsets.inc"
%define PHYS(sym) ((sym) - LINK_BASE)
%define HERE(sym) ((sym) - trampoline)

section .rodata
bits 16
global trampoline, trampoline_end
align 8
trampoline:
        cli
        cld
        mov ax, cs
        mov ds, ax
        xor ebx, ebx
        mov bx, ax
        shl ebx, 4              ; P
        lea eax, [ebx + HERE(.gdt)]
        mov [HERE(.gdtr) + 2], eax
        o32 lgdt [HERE(.gdtr)]
        mov eax, cr0
        and eax, 0x9fffffff     ; caches on (CD, NW: set after INIT)
        or al, 1
        mov cr0, eax
        o32 jmp far [HERE(.target)]
.target:
        dd ap32
        dw 0x08
align 8
.gdt:   dq 0, 0x00cf9b000000ffff, 0x00cf93000000ffff
.gdtr:  dw 23
        dd 0
trampoline_end:

section .boot
bits 32
ap32:
        mov ax, 0x10
        mov ds, ax
        mov es, ax
        mov ss, ax
        lea esp, [ebx + 4096]   ; the rest of the page
        mov eax, 0x80000001
        cpuid
        mov eax, PHYS(boot_pml4)
        extern enter_long, boot_pml4
        call enter_long
        jmp SEL_CODE:ap64
bits 64
ap64:   mov rax, ap_high
        jmp rax

section .text
ap_high:
        mov eax, SEL_DATA
        mov ds, eax
        mov es, eax
        mov ss, eax
        mov rax, [ap_final_cr3]
        mov cr3, rax
        mov rsp, [ap_stack]
        xor ebp, ebp
        extern ap_main
        call ap_main
        ud2

section .bss
global ap_final_cr3, ap_stack
alignb 8
ap_final_cr3:   resq 1
ap_stack:       resq 1
