; args: one word
; A 32-bit multiboot1 kernel: is it started as the specification says (0.6.96, 3.2), with a memory
; map and its command line, and do ports 0xe9 and 0xf4 work as in QEMU?

BOOTED  equ 0x2badb002

%include "kernel.inc"

        cmp     eax, BOOTED
        mov     esi, start32.no_magic
        jne     fail
        mov     eax, cr0
        and     eax, 0x80000001
        cmp     eax, 1                  ; protected mode, no paging
        mov     esi, start32.no_mode
        jne     fail
        pushf
        pop     eax
        test    eax, 0x200
        mov     esi, start32.irqs
        jnz     fail
        mov     ax, ds
        mov     cx, ss
        cmp     ax, cx
        mov     esi, start32.segments
        jne     fail

        test    dword [ebx], 1          ; mem_lower, mem_upper
        mov     esi, start32.no_memory
        jz      fail
        cmp     dword [ebx + 8], 1024   ; above 1 MiB
        jb      fail
        test    dword [ebx], 0x40       ; memory map
        mov     esi, start32.no_map
        jz      fail

        ; An entry of the map: size, address, length, type. The sum of RAM must be at least
        ; mem_upper.
        mov     ecx, [ebx + 44]
        mov     edi, [ebx + 48]
        add     ecx, edi
        xor     edx, edx
.entry: cmp     edi, ecx
        jae     .mapped
        cmp     dword [edi + 20], 1
        jne     .next
        add     edx, [edi + 12]
.next:  mov     eax, [edi]
        lea     edi, [edi + eax + 4]
        jmp     .entry
.mapped:
        shr     edx, 10
        mov     esi, start32.map_small
        cmp     edx, [ebx + 8]
        jb      fail

        test    dword [ebx], 4          ; command line
        mov     esi, start32.no_cmdline
        jz      fail
        mov     edi, [ebx + 16]
.word:  cmp     byte [edi], 0
        je      fail
        cmp     dword [edi], 'word'
        je      .found
        inc     edi
        jmp     .word
.found:
        ; The BSS behind the image is there, and clean.
        mov     edi, stack
        mov     ecx, 1024
        xor     eax, eax
        repe    scasd
        mov     esi, start32.dirty
        jne     fail

        mov     esi, start32.success
        call    print
        mov     eax, 0
        jmp     leave_vm

fail:   push    esi
        mov     esi, fail.failure
        call    print
        pop     esi
        call    print
        mov     eax, 3
        jmp     leave_vm

section .rodata
start32.no_magic:   db "EAX is not multiboot's", 10, 0
start32.no_mode:    db "not in protected mode without paging", 10, 0
start32.irqs:       db "interrupts are on", 10, 0
start32.segments:   db "DS and SS differ", 10, 0
start32.no_memory:  db "no memory sizes", 10, 0
start32.no_map:     db "no memory map", 10, 0
start32.map_small:  db "the map has less than mem_upper", 10, 0
start32.no_cmdline: db "no command line, or not ours", 10, 0
start32.dirty:      db "BSS is not zero", 10, 0
start32.success:    db "RESULT: SUCCESS a multiboot kernel starts", 10, 0
fail.failure:       db "RESULT: FAILURE ", 0

section .bss nobits alloc write align=4096
stack:  resb    4096 + 1024
stack_top:
