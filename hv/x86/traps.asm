; One stub a vector; vectors 8, 10-14, 17, 21, 29, 30 push an error code themselves (SDM 3A 6.15, APM2 8.2).

section .text

%macro stub 1
trap_%1:
  %if !(%1 == 8 || (%1 >= 10 && %1 <= 14) || %1 == 17 || %1 == 21 || %1 == 29 || %1 == 30)
        push 0
  %endif
        push %1
        jmp save_all
%endmacro

%assign i 0
%rep 256
        stub i
  %assign i i + 1
%endrep

save_all:
        push rax
        push rcx
        push rdx
        push rbx
        push rbp
        push rsi
        push rdi
        push r8
        push r9
        push r10
        push r11
        push r12
        push r13
        push r14
        push r15
        cld
        mov rdi, rsp
        mov rbp, rsp
        and rsp, -16
        extern trap_handle
        call trap_handle
        mov rsp, rbp
        pop r15
        pop r14
        pop r13
        pop r12
        pop r11
        pop r10
        pop r9
        pop r8
        pop rdi
        pop rsi
        pop rbp
        pop rbx
        pop rdx
        pop rcx
        pop rax
        add rsp, 16
        iretq

global stack_switch
stack_switch:
        mov rsp, rdi
        xor ebp, ebp
        call rsi
        ud2

section .rodata
align 8
global trap_stubs
trap_stubs:
%assign i 0
%rep 256
        dq trap_ %+ i
  %assign i i + 1
%endrep
