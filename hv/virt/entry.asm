; World switches: SDM 3C 27 and 28, APM2 15.5. Of the general registers the hardware switches none
; but RSP, and on AMD-V RAX. GPR n is at regs + 8 * n, in the order in which instructions number
; them; RDI, 7, points there.
bits 64
section .text

%include "each.inc"

%define GPR(n) [rdi + 8 * n]
%define VMCS_HOST_RSP 0x6c14

%macro LOAD 2
    mov %1, GPR(%2)
%endmacro

%macro STORE 2
    mov GPR(%2), %1
%endmacro

%macro GPRS 1                   ; all but RAX, RSP and RDI
    %1 rcx, 1
    %1 rdx, 2
    %1 rbx, 3
    %1 rbp, 5
    %1 rsi, 6
  %assign n 8
  %rep 8
    %1 r%[n], n
    %assign n n + 1
  %endrep
%endmacro

%macro ENTER 0
    each push, rbx, rbp, r12, r13, r14, r15
%endmacro

%macro LEAVE 0
    each pop, r15, r14, r13, r12, rbp, rbx
    ret
%endmacro

; int vmx_enter(struct guest_regs *regs, bool launched): 0 after an exit, 1 if the instruction
; itself failed. RSP, RIP and RFLAGS are in the VMCS. Interrupts are off on both sides: in the guest
; they exit, whatever IF is.
global vmx_enter, vmx_exit
vmx_enter:
    ENTER
    push rdi                ; regs
    mov eax, VMCS_HOST_RSP
    vmwrite rax, rsp
    test esi, esi
    mov rax, GPR(0)
    GPRS LOAD
    mov rdi, GPR(7)
    jz .launch
    vmresume
    jmp .failed
.launch:
    vmlaunch
.failed:
    pop rdi
    mov eax, 1
    LEAVE

vmx_exit:
    xchg rdi, [rsp]         ; regs
    mov GPR(0), rax
    GPRS STORE
    pop qword GPR(7)
    xor eax, eax
    LEAVE

; void svm_enter(struct guest_regs *regs, u64 vmcb_pa, u64 host_pa)
; RAX, RSP, RIP and RFLAGS are in the VMCB. Physical interrupts are taken by the guest's side of
; VMRUN only: the global interrupt flag is off around it, and the host's IF is on while the guest
; runs so that they end its stay.
global svm_enter
svm_enter:
    ENTER
    push rdx                ; host_pa
    push rdi                ; regs
    mov rax, rsi
    GPRS LOAD
    mov rdi, GPR(7)
    clgi
    sti
    vmload
    vmrun
    vmsave
    xchg rdi, [rsp]         ; regs
    GPRS STORE
    pop qword GPR(7)
    pop rax                 ; host_pa: FS, GS, TR and what else VMRUN leaves the guest's
    vmload
    cli
    stgi                    ; a pending NMI is taken here
    LEAVE
