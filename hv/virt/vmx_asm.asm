; World switch of VT-x: SDM 3C 27 and 28. GPR n is at regs + 8 * n, in the order in which instructions
; number them.
bits 64
section .text

%define GPR(n) [rdi + 8 * n]
%define VMCS_HOST_RSP 0x6c14

; int vmx_enter(struct guest_regs *regs, bool launched): 0 after an exit, 1 if the instruction itself failed.
; RSP, RIP and RFLAGS are in the VMCS. Interrupts are off on both sides: in the guest they exit, whatever IF
; is.
global vmx_enter, vmx_exit
vmx_enter:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    push rdi                ; regs
    mov eax, VMCS_HOST_RSP
    vmwrite rax, rsp
    test esi, esi
    mov rax, GPR(0)
    mov rcx, GPR(1)
    mov rdx, GPR(2)
    mov rbx, GPR(3)
    mov rbp, GPR(5)
    mov rsi, GPR(6)
    mov r8, GPR(8)
    mov r9, GPR(9)
    mov r10, GPR(10)
    mov r11, GPR(11)
    mov r12, GPR(12)
    mov r13, GPR(13)
    mov r14, GPR(14)
    mov r15, GPR(15)
    mov rdi, GPR(7)
    jz .launch
    vmresume
    jmp .failed
.launch:
    vmlaunch
.failed:
    pop rdi
    mov eax, 1
    jmp .out

vmx_exit:
    xchg rdi, [rsp]         ; regs
    mov GPR(0), rax
    mov GPR(1), rcx
    mov GPR(2), rdx
    mov GPR(3), rbx
    mov GPR(5), rbp
    mov GPR(6), rsi
    mov GPR(8), r8
    mov GPR(9), r9
    mov GPR(10), r10
    mov GPR(11), r11
    mov GPR(12), r12
    mov GPR(13), r13
    mov GPR(14), r14
    mov GPR(15), r15
    pop rcx
    mov GPR(7), rcx
    xor eax, eax
vmx_enter.out:
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret
