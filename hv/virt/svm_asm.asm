; World switch of AMD-V: APM2 15.5. GPR n is at regs + 8 * n, in the order in which instructions number them.
bits 64
section .text

%define GPR(n) [rdi + 8 * n]

; void svm_enter(struct guest_regs *regs, u64 vmcb_pa, u64 host_pa)
; RAX, RSP, RIP and RFLAGS are in the VMCB. Physical interrupts are taken by the guest's side of VMRUN only:
; the global interrupt flag is off around it, and the host's IF is on while the guest runs so that they end
; its stay.
global svm_enter
svm_enter:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    push rdx                ; host_pa
    push rdi                ; regs
    mov rax, rsi
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
    clgi
    sti
    vmload
    vmrun
    vmsave
    xchg rdi, [rsp]         ; regs
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
    pop rax                 ; host_pa: FS, GS, TR and what else VMRUN leaves the guest's
    vmload
    cli
    stgi                    ; a pending NMI is taken here
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret
