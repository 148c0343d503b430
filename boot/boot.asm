; Entry from GRUB (multiboot2) to 64-bit C. Multiboot2 specification 3.1 (header), 3.3 (machine state).
%include "asm_offsets.inc"

MB2_MAGIC  equ 0xe85250d6
COM1       equ 0x3f8
%define PHYS(sym) ((sym) - LINK_BASE)

section .multiboot
align 8
header:
        dd MB2_MAGIC, 0, header_end - header, -(MB2_MAGIC + 0 + (header_end - header))
        align 8
        ; type 5, a frame buffer of 32 bits, in the copy that tools/mkiso.sh
        db 'FB'                 ; of no meaning
        dw 1                    ; makes for UEFI. BIOS keeps its text mode: GRUB fails to set others in Bochs.
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
        mov esi, uart_setup
.uart:  movzx edx, byte [esi]
        add edx, COM1
        mov al, [esi + 1]
        out dx, al
        add esi, 2
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
        mov edi, edx            ; bit 20: NX

        ; 4 GiB in 2 MiB pages: identity, at DIRECTMAP, and the first 2 GiB at LINK_BASE
        mov eax, 0x83           ; present, writable, large
        xor ecx, ecx
.fill:  mov [PHYS(boot_pd) + ecx * 8], eax
        add eax, 0x200000
        inc ecx
        cmp ecx, 2048
        jb .fill
        mov eax, PHYS(boot_pd) + 3
        xor ecx, ecx
.pdpt:  mov [PHYS(boot_pdpt) + ecx * 8], eax
        add eax, 4096
        inc ecx
        cmp ecx, 4
        jb .pdpt
        mov dword [PHYS(boot_pdpt_high) + 510 * 8], PHYS(boot_pd) + 3
        mov dword [PHYS(boot_pdpt_high) + 511 * 8], PHYS(boot_pd) + 4096 + 3
        mov dword [PHYS(boot_pml4)], PHYS(boot_pdpt) + 3
        mov dword [PHYS(boot_pml4) + 256 * 8], PHYS(boot_pdpt) + 3
        mov dword [PHYS(boot_pml4) + 511 * 8], PHYS(boot_pdpt_high) + 3

        mov eax, PHYS(boot_pml4)
        mov edx, edi
        call enter_long
        jmp SEL_CODE:start64

; Switches long mode on with the page tables at EAX; CPUID 80000001h EDX is in EDX. Also the road of the APs.
global enter_long
enter_long:
        mov cr3, eax
        mov edi, edx
        mov eax, cr4
        or eax, 0x20            ; PAE
        mov cr4, eax
        mov ecx, 0xc0000080     ; EFER: LME, and NXE if there is NX (SDM 3A 10.8.5)
        rdmsr
        or eax, 0x100
        bt edi, 20
        jnc .no_nx
        or eax, 0x800
.no_nx: wrmsr
        mov eax, 0x80010033     ; PG WP NE ET MP PE
        mov cr0, eax
        lgdt [boot_gdtr]
        ret

no_long_mode:
        mov esi, no_long_text
        call puts32
.stop:  hlt
        jmp .stop

; ESI: text. Waits a bounded time for the transmitter.
puts32: lodsb
        test al, al
        jz .done
        mov ah, al
        mov ecx, 100000
.wait:  mov edx, COM1 + 5
        in al, dx
        test al, 0x20
        loopz .wait
        mov edx, COM1
        mov al, ah
        out dx, al
        jmp puts32
.done:  ret

bits 64
start64:
        mov rax, high64
        jmp rax

; 115200 baud 8n1, FIFO on, no interrupts: offset and value (PC16550D 8.0)
uart_setup:     db 1, 0, 3, 0x80, 0, 1, 1, 0, 3, 3, 2, 7, 4, 3
uart_setup_end:
hello:          db 13, 10, "Takt", 13, 10, 0
no_long_text:   db "Takt needs a 64-bit CPU; this one has no long mode. Stopped.", 13, 10, 0

align 8
boot_gdt:
        dq 0, 0x00af9b000000ffff, 0x00cf93000000ffff
global boot_gdtr
boot_gdtr:
        dw boot_gdtr - boot_gdt - 1
        dq boot_gdt

section .text
high64:
        mov eax, SEL_DATA
        mov ds, eax
        mov es, eax
        mov ss, eax
        xor eax, eax
        mov fs, eax
        mov gs, eax
        mov rsp, boot_stack_top
        mov edi, [loader_magic]
        mov esi, [loader_info]
        xor ebp, ebp
        extern hv_main
        call hv_main
        ud2

section .bss
alignb 4096
global boot_pml4
boot_pml4:      resb 4096
boot_pdpt:      resb 4096
boot_pdpt_high: resb 4096
boot_pd:        resb 4 * 4096
                resb BOOT_STACK
boot_stack_top:
loader_magic:   resd 1
loader_info:    resd 1
