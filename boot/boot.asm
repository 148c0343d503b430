; How a CPU gets to 64-bit C code: the boot CPU from GRUB (multiboot2 specification, 3.1 header and
; 3.3 machine state), the others from their SIPI.
%include "layout.inc"

MB2_MAGIC  equ 0xe85250d6
COM1       equ 0x3f8
SEL_CODE32 equ 0x18
%define PHYS(sym) ((sym) - LINK_BASE)
%define PD(n) (PHYS(boot_pd) + 4096 * (n) + 3)

section .multiboot
align 8
header:
        dd MB2_MAGIC, 0, header_end - header, -(MB2_MAGIC + 0 + (header_end - header))
        align 8
        ; GRUB ignores this tag. In the copy of the image for UEFI, tools/mkiso.sh makes it a tag of
        ; type 5, which asks for a frame buffer of 32 bits. With BIOS the text mode stays: in Bochs,
        ; GRUB fails to set another.
        db 'FB'                 ; by which tools/mkiso.sh finds the tag
        dw 1                    ; optional
        dd 20, 0, 0, 32
        align 8
        dw 6, 1                 ; modules on page boundaries
        dd 8
        align 8
        dw 0, 0
        dd 8
header_end:

section .boot progbits alloc exec nowrite align=16
bits 32
global start32
start32:
        cli
        cld
        mov esp, PHYS(boot_stack_top)
        mov [PHYS(loader_magic)], eax
        mov [PHYS(loader_info)], ebx
        mov edx, COM1
        mov esi, uart_setup
.uart:  lodsw
        mov dl, ah
        out dx, al
        cmp esi, uart_setup_end
        jb .uart
        mov esi, hello
        call puts32

        mov eax, 0x80000000
        cpuid
        cmp eax, 0x80000001
        jb no_long_mode
        mov eax, 0x80000001
        cpuid
        bt edx, 29              ; LM
        jnc no_long_mode
        mov esi, PHYS(bsp64)

; Switches to long mode, with control registers as every CPU has them, and goes on at physical
; address ESI.
long_mode:
        mov eax, PHYS(boot_pml4)
        mov cr3, eax
        mov eax, 0x60           ; MCE PAE
        mov cr4, eax
        mov eax, 0x80000001
        cpuid
        and edx, 1 << 20        ; NX
        shr edx, 20 - 11
        lea eax, [edx + 0x100]  ; EFER: LME, and NXE if there is NX (SDM 3A 10.8.5)
        xor edx, edx
        mov ecx, 0xc0000080
        wrmsr
        mov eax, 0x80010033     ; PG WP NE ET MP PE
        mov cr0, eax
        lgdt [boot_gdtr]
        mov eax, SEL_DATA
        mov ds, eax
        mov es, eax
        mov ss, eax
        mov fs, eax
        mov gs, eax
        jmp SEL_CODE:.high
bits 64
.high:  mov rax, LINK_BASE
        add rax, rsi
        jmp rax

bits 32
no_long_mode:
        mov esi, no_long_text
        call puts32
.stop:  hlt
        jmp .stop

; Prints the text at ESI, up to and with its 0. Waits for the transmitter for a bounded time only,
; because there may be no port.
puts32: mov ecx, 100000
        mov edx, COM1 + 5
.wait:  in al, dx
        test al, 0x20
        loopz .wait
        mov edx, COM1
        lodsb
        out dx, al
        test al, al
        jnz puts32
        ret

; Sets 115200 baud, 8n1, FIFO on, no interrupts. Each word is the low byte of a port's number and
; the value that is written there (PC16550D 8.0).
uart_setup:     dw 0xf900, 0xfb80, 0xf801, 0xf900, 0xfb03, 0xfa07, 0xfc03
uart_setup_end:
hello:          db 13, 10, "Takt", 13, 10, 0
no_long_text:   db "Takt needs a 64-bit CPU; this one has no long mode. Stopped.", 13, 10, 0

align 8
boot_gdt:       dq 0, 0x00af9b000000ffff, 0x00cf93000000ffff, 0x00cf9b000000ffff
boot_gdtr:      dw boot_gdtr - boot_gdt - 1
                dd boot_gdt

section .text
bits 64
extern hv_main, ap_main
bsp64:  mov rsp, boot_stack_top
        mov edi, [loader_magic]
        mov esi, [loader_info]
        xor ebp, ebp
        call hv_main
        ud2

; ---- the other CPUs. The code from trampoline to trampoline_end is copied to a page below 640 KiB,
; where the SIPI starts it in real mode. One CPU goes through it at a time ----

section .rodata
bits 16
global trampoline, trampoline_end
trampoline:
        mov ax, cs
        mov ds, ax
        o32 lgdt [.gdtr - trampoline]
        mov eax, 0x11           ; PE ET; caches on (CD and NW are set after INIT)
        mov cr0, eax
        jmp dword SEL_CODE32:ap32
.gdtr:  dw boot_gdtr - boot_gdt - 1
        dd boot_gdt
trampoline_end:

section .boot
bits 32
ap32:   mov ax, SEL_DATA
        mov ds, ax
        mov esi, PHYS(ap64)
        jmp long_mode

section .text
bits 64
ap64:   mov rax, [ap_final_cr3]
        mov cr3, rax
        mov rsp, [ap_stack]
        xor ebp, ebp
        call ap_main
        ud2

; ---- page tables for the first 4 GiB, in 2 MiB pages: at their physical addresses and at
; DIRECTMAP, and the first 2 GiB also at LINK_BASE ----

section .data
align 4096
global boot_pml4
boot_pml4:      dq PHYS(boot_pdpt) + 3
                times 255 dq 0
                dq PHYS(boot_pdpt) + 3
                times 254 dq 0
                dq PHYS(boot_pdpt_high) + 3
boot_pdpt:      dq PD(0), PD(1), PD(2), PD(3)
                times 508 dq 0
boot_pdpt_high: times 510 dq 0
                dq PD(0), PD(1)
boot_pd:
%assign page 0x83               ; present, writable, large
%rep 2048
                dq page
  %assign page page + 0x200000
%endrep

section .bss
global ap_final_cr3, ap_stack
alignb 16
                resb BOOT_STACK
boot_stack_top:
loader_magic:   resd 1
loader_info:    resd 1
ap_final_cr3:   resq 1
ap_stack:       resq 1
