; The whole firmware of a machine on which tools/apicvmodels.py asks a CPU what VT-x can do there.
; It prints a line `MSR VALUE`, both in hexadecimal, for each MSR, and switches the machine off. Of
; the value only the upper half is printed: the controls that may be set (SDM 3D A.3).

CONSOLE     equ 0xe9    ; what is written to this port appears on the terminal of Bochs
OFF         equ 0x8900  ; this word, written to this port, ends Bochs
VMX         equ 5       ; bit of CPUID leaf 1, ECX
MSR_PIN     equ 0x481
MSR_PRIMARY equ 0x482
MSR_SECOND  equ 0x48b   ; only there if the last bit of MSR_PRIMARY is set
SIZE        equ 0x10000
RESET       equ 0xfff0  ; where a CPU begins

    bits 16
    org 0
start:
    xor ax, ax
    mov ss, ax
    mov sp, 0x7000
    mov ax, cs
    mov ds, ax
    mov eax, 1
    cpuid
    bt ecx, VMX
    jnc off
    mov ecx, MSR_PIN
    call say
    mov ecx, MSR_PRIMARY
    call say
    bt edx, 31
    jnc off
    mov ecx, MSR_SECOND
    call say
off:
    mov si, word_off
    mov dx, OFF
.next:
    lodsb
    out dx, al
    test al, al
    jnz .next
    hlt

; Prints the line for the MSR in ECX. Returns the upper half of its value in EDX.
say:
    rdmsr
    mov eax, ecx
    call hex
    mov al, ' '
    out CONSOLE, al
    mov eax, edx
    call hex
    mov al, 10
    out CONSOLE, al
    ret

; Prints EAX as eight digits. Changes EAX, EBX and SI.
hex:
    mov ebx, eax
    mov si, 8
.digit:
    rol ebx, 4
    mov al, bl
    and al, 15
    add al, '0'
    cmp al, '9'
    jbe .out
    add al, 'a' - '9' - 1
.out:
    out CONSOLE, al
    dec si
    jnz .digit
    ret

word_off: db "Shutdown", 0

    times RESET - ($ - $$) db 0
    jmp 0xf000:start
    times SIZE - ($ - $$) db 0
