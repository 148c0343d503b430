; One stub of 16 bytes a vector. 8, 10-14, 17, 21, 29, 30 push an error code themselves (SDM 3A
; 6.15, APM2 8.2).
bits 64
section .text

%include "each.inc"

global trap_stubs
align 16
trap_stubs:
%assign v 0
%rep 256
  %if !(v == 8 || (v >= 10 && v <= 14) || v == 17 || v == 21 || v == 29 || v == 30)
        push 0
  %endif
        push v
        jmp save_all
        align 16
  %assign v v + 1
%endrep

save_all:
        each push, rax, rcx, rdx, rbx, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15
        cld
        mov rdi, rsp
        mov rbp, rsp
        and rsp, -16
        extern trap_handle
        call trap_handle
        mov rsp, rbp
        each pop, r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, rcx, rax
        add rsp, 16
        iretq
