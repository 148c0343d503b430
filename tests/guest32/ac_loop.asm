; only: bochs
; vms: 2
; cpus: 0
; time: 800
; Delivery of #AC that raises #AC again, without end (CVE-2015-5307): a handler at the privilege
; level of the fault, on a stack that is not aligned. Takt sees each of them; the other VM on the
; same pCPU goes on. In 64-bit mode the CPU aligns the stack itself, so this takes a 32-bit guest.
; QEMU's CPU raises no #AC.

AC      equ 1 << 18             ; in EFLAGS, and AM in CR0
TICKS   equ 10000000            ; of the TSC: 100 ms on Bochs

%include "kernel.inc"

        mov     edi, [ebx + 16]         ; the command line
.which: cmp     byte [edi], 0
        je      other
        cmp     dword [edi], 'vm=2'
        je      storm
        inc     edi
        jmp     .which

; VM 1: computes for a while.
other:  rdtsc
        lea     ebx, [eax + TICKS]
.spin:  rdtsc
        sub     eax, ebx
        js      .spin
        mov     esi, text.success
        call    print
        mov     eax, 0
        jmp     leave_vm

; VM 2: at CPL 3 with IOPL 3. Its result comes first, as nothing comes after.
storm:  mov     eax, on_ac
        mov     [idt + 17 * 8], ax
        mov     word [idt + 17 * 8 + 2], 0x1b
        mov     word [idt + 17 * 8 + 4], 0x8e00
        shr     eax, 16
        mov     [idt + 17 * 8 + 6], ax
        lidt    [idtr]
        lgdt    [gdtr]
        mov     esi, text.begins
        call    print
        mov     eax, cr0
        or      eax, AC
        mov     cr0, eax
        push    dword 0x23
        push    dword stack_top - 1
        push    dword AC | 3 << 12 | 2
        push    dword 0x1b
        push    dword .user
        iret
.user:  push    eax
        mov     esi, text.no_ac
        jmp     failed
on_ac:  mov     esi, text.delivered
failed: mov     esp, stack_top
        call    print
.stay:  jmp     .stay

section .rodata
align 8
gdt:    dq      0, 0x00cf9b000000ffff, 0x00cf93000000ffff, 0x00cffb000000ffff, 0x00cff3000000ffff
gdtr:   dw      gdtr - gdt - 1
        dd      gdt
idtr:   dw      18 * 8 - 1
        dd      idt
text:
.begins:        db "RESULT: SUCCESS the loop begins", 10, 0
.success:       db "RESULT: SUCCESS an endless delivery of #AC is its own VM's problem", 10, 0
.no_ac:         db "RESULT: FAILURE no #AC by a push to where it is not aligned", 10, 0
.delivered:     db "RESULT: FAILURE #AC was delivered on a stack that is not aligned", 10, 0

section .bss nobits alloc write align=16
idt:    resb    18 * 8
stack:  resb    4096
stack_top:
