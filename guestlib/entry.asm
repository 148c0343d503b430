; The entries of exceptions and interrupts, the switch between threads, and the ways into other
; privilege levels and modes and back.

SEL_CODE64      equ 0x08
SEL_CODE32      equ 0x18
VCPU_USER_SP    equ 8           ; struct vcpu, from GS
VCPU_TRY_SP     equ 16

extern trap
global trap_entries, thread_switch, user_enter, user_return, try_enter, try_return, compat_call
global hypercall_vmcall, hypercall_vmmcall

section .text
bits 64

; ---- 256 entries, 16 bytes apart ----
align 16
trap_entries:
%assign v 0
%rep 256
        align 16
%if v == 8 || (v >= 10 && v <= 14) || v == 17 || v == 21 || v == 29 || v == 30
%else
        push    qword 0
%endif
        push    qword v
        jmp     near save_all
%assign v v + 1
%endrep

align 16
save_all:                         ; the stack is a struct trap_frame (trap.h)
        push    rax
        push    rcx
        push    rdx
        push    rbx
        push    rbp
        push    rsi
        push    rdi
        push    r8
        push    r9
        push    r10
        push    r11
        push    r12
        push    r13
        push    r14
        push    r15
        cld
        mov     rdi, rsp
        call    trap
        pop     r15
        pop     r14
        pop     r13
        pop     r12
        pop     r11
        pop     r10
        pop     r9
        pop     r8
        pop     rdi
        pop     rsi
        pop     rbp
        pop     rbx
        pop     rdx
        pop     rcx
        pop     rax
        add     rsp, 16
        iretq

%macro SAVE 0
        push    rbx
        push    rbp
        push    r12
        push    r13
        push    r14
        push    r15
%endmacro
%macro RESTORE 0
        pop     r15
        pop     r14
        pop     r13
        pop     r12
        pop     rbp
        pop     rbx
%endmacro

; void thread_switch(u64 *save_rsp, u64 new_rsp)
thread_switch:
        SAVE
        mov     [rdi], rsp
        mov     rsp, rsi
        RESTORE
        ret

; u64 user_enter(u64 rip, u64 arg, u64 cs, u64 ss, u64 rsp): to CPL 3. trap() comes back by way of
; user_return, with RSP as it is after SAVE.
user_enter:
        SAVE
        mov     [gs:VCPU_USER_SP], rsp
        mov     ds, ecx
        mov     es, ecx
        push    rcx
        push    r8
        push    qword 2
        push    rdx
        push    rdi
        mov     rdi, rsi
        xor     eax, eax
        iretq
user_return:
        RESTORE
        ret

; void try_enter(void (*fn)(void *), void *arg): calls fn(arg). After an exception, trap() comes
; back by way of try_return.
try_enter:
        SAVE
        push    qword [gs:VCPU_TRY_SP]
        mov     [gs:VCPU_TRY_SP], rsp
        mov     rax, rdi
        mov     rdi, rsi
        sub     rsp, 8 + 8
        and     rsp, -16
        call    rax
        mov     rsp, [gs:VCPU_TRY_SP]
try_return:
        pop     qword [gs:VCPU_TRY_SP]
        RESTORE
        ret

; void compat_call(const void *rip, struct compat_regs *regs)
compat_call:
        SAVE
        push    rsi
        mov     edi, edi
        mov     rax, [rsi]
        mov     rbx, [rsi + 8]
        mov     rcx, [rsi + 16]
        mov     rdx, [rsi + 24]
        mov     rsi, [rsi + 32]
        push    qword SEL_CODE32
        push    qword .compat
        o64 retf
bits 32
.compat:
        call    edi
        jmp     SEL_CODE64:.long
bits 64
.long:
        mov     esp, esp
        mov     rdi, [rsp]
        mov     [rdi], rax
        mov     [rdi + 8], rbx
        mov     [rdi + 16], rcx
        mov     [rdi + 24], rdx
        mov     [rdi + 32], rsi
        pop     rsi
        RESTORE
        ret

; i64 hypercall_*(u32 number, u64 a, u64 b, u64 c, u64 d)
%macro HYPERCALL 1
        push    rbx
        mov     eax, edi
        mov     rbx, rsi
        xchg    rcx, rdx        ; b was in RDX, c in RCX
        mov     rsi, r8
        %1
        pop     rbx
        ret
%endmacro
hypercall_vmcall:
        HYPERCALL vmcall
hypercall_vmmcall:
        HYPERCALL vmmcall
