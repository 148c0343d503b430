/* What Takt and its guests agree on: CPUID leaves, fixed guest-physical places, shared pages,
 * hypercalls.
 *
 * A hypercall is VMCALL (Intel) or VMMCALL (AMD) at CPL 0 in protected or long mode; CPUID leaf
 * 0x40000001 tells which. EAX holds the number, EBX, ECX, EDX, ESI the arguments, EAX the
 * result: >= 0, or a negative errno. A caller in 64-bit mode passes and receives 64 bits; in any
 * other mode the upper halves are ignored and the result is sign-extended to 32 bits. Every
 * other register is preserved. From CPL 3 the result is -EPERM; in real mode it is #UD. Pointers
 * are guest-physical addresses and must lie wholly in RAM, else -EFAULT. Strings need no
 * terminator; lengths count bytes. */
#ifndef TAKT_ABI_H
#define TAKT_ABI_H

#include <takt/types.h>

#define TAKT_ABI_VERSION 0x00010000u /* major << 16 | minor */

/* ---- CPUID, from 0x40000000 ---- */
#define TAKT_CPUID_BASE 0x40000000u /* eax: highest leaf; ebx, ecx, edx: "TaktTaktTakt" */
/* eax: TAKT_ABI_VERSION; ebx: TAKT_FEAT_*; ecx: VM id; edx: vCPU id */
#define TAKT_CPUID_ABI  0x40000001u
#define TAKT_CPUID_TIME 0x40000002u /* eax: TSC kHz; ebx: LAPIC timer kHz before the divider */
/* eax: TAKT_SHARED_GPA; ebx: TAKT_INFO_GPA; ecx: number of vCPUs */
#define TAKT_CPUID_INFO 0x40000003u
/* eax, ebx: the seed of the machine (`seed` in [hypervisor]), low and high half; ecx, edx: that of
 * this VM, which follows from it and the VM's name: <takt/seed.h> */
#define TAKT_CPUID_SEED   0x40000004u
#define TAKT_SIGNATURE    "TaktTaktTakt"

#define TAKT_FEAT_VMMCALL 0x1u /* the hypercall instruction is VMMCALL, not VMCALL */

/* ---- Guest-physical layout. RAM is [0, memory) up to TAKT_LOW_RAM_MAX, the rest from 4 GiB
 * ---- */
#define TAKT_LOW_RAM_MAX 0xc0000000ull
#define TAKT_HIGH_RAM    0x100000000ull
#define TAKT_IOAPIC_GPA  0xfec00000ull /* kept free */
#define TAKT_VIRTIO_GPA  0xfed00000ull /* virtio-mmio transports, 4 KiB each; kept free */
#define TAKT_SHARED_GPA  0xfed80000ull /* one struct takt_shared, read-write */
/* one struct takt_vcpu_info a vCPU, 4 KiB apart, read-only */
#define TAKT_INFO_GPA      0xfed81000ull
#define TAKT_LAPIC_GPA     0xfee00000ull
#define TAKT_MAX_VCPUS     64
#define TAKT_MAX_PORTS     1024
#define TAKT_PORT_ANY      0xffffffffu
#define TAKT_VECTOR_NO_EOI 0x100u

/* Events of a VM. The hypervisor sets a pending bit, then, if it was clear and is not masked,
 * raises the vector bound to the port on the vCPU bound to it. The guest clears the bit (locked)
 * before it handles the event. Its own word in the mask is advice: TAKT_HC_EVTCHN_MASK unmasks
 * with delivery. */
struct takt_shared {
    u64 pending[TAKT_MAX_PORTS / 64];
    u64 mask[TAKT_MAX_PORTS / 64];
};

/* Time of one vCPU. Read it as a sequence lock: `seq` is odd while it changes. `state` was
 * entered when the guest's TSC read `since_tsc`; the three sums do not contain the time since
 * then. */
struct takt_vcpu_info {
    u32 seq;
    u32 state; /* TAKT_STATE_* */
    u64 since_tsc;
    u64 run_ns;      /* executing */
    u64 runnable_ns; /* ready, waiting for a pCPU: stolen time */
    u64 blocked_ns;  /* halted or waiting for an event */
    u64 tsc_khz;
    u64 wake_tsc; /* guest's TSC at the last wake that made it runnable */
    u64 wakes;    /* how many of those */
};

enum takt_state { TAKT_STATE_RUNNING, TAKT_STATE_RUNNABLE, TAKT_STATE_BLOCKED, TAKT_STATE_OFFLINE };

/* ---- Hypercalls ---- */
enum takt_hypercall {
    TAKT_HC_VERSION = 0, /* () -> TAKT_ABI_VERSION */
    /* (gpa, length <= 4096) -> bytes taken; -EAGAIN when the ring is full */
    TAKT_HC_CONSOLE_WRITE = 1,
    TAKT_HC_CONSOLE_READ = 2, /* (gpa, length <= 4096) -> bytes given, 0 if none */
    /* () -> ns since the hypervisor started; 32-bit callers: -> EAX low half */
    TAKT_HC_TIME = 3,
    TAKT_HC_YIELD = 4, /* () -> 0 */
    TAKT_HC_POLL =
        5, /* (port or TAKT_PORT_ANY, deadline in ns of TAKT_HC_TIME, 0 = none) -> 0; -ETIMEDOUT.
                         Blocks until the port (any port bound to this vCPU) is pending. */
    TAKT_HC_EVTCHN_ALLOC = 6,  /* (VM that may bind) -> port */
    TAKT_HC_EVTCHN_BIND = 7,   /* (VM, its port) -> own port, joined with it */
    TAKT_HC_EVTCHN_SEND = 8,   /* (port) -> 0: raises the other end */
    TAKT_HC_EVTCHN_MASK = 9,   /* (port, 0 or 1) -> 0: unmasking delivers what is pending */
    TAKT_HC_EVTCHN_CLOSE = 10, /* (port) -> 0 */
    /* (port, vCPU, vector 32..255, or 0 for none) -> 0. With TAKT_VECTOR_NO_EOI that vector of the
     * vCPU is not in service after it was delivered, whatever raised it: its handler makes no EOI,
     * and no exit. That goes for other vCPUs, too, from the time that the VM's `route` first sends
     * them the vector. */
    TAKT_HC_EVTCHN_VECTOR = 11,
    TAKT_HC_VCPU_INFO = 12, /* (vCPU, gpa of a struct takt_vcpu_info) -> 0 */
    /* (TAKT_SHUTDOWN_*, code, of a crash the address of the instruction or 0) -> does not
     * return. Takt tells the function that the address is in. */
    TAKT_HC_SHUTDOWN = 13,
    /* (n <= TAKT_IO_REPORT_MAX) -> 0: the driver took n device interrupts since its last report
     * that Takt did not see. They count as events that others raised. */
    TAKT_HC_IO_REPORT = 14,
    /* (1: by the driver's own count of clean-ups this VM does more I/O than TAKT_IO_BUSY from
     * now on; 0: no longer) -> 0. Takt counts itself, and believes it of a VM that gets half as
     * many events. */
    TAKT_HC_IO_CLASS = 15,

    /* Devices: <takt/device.h>. Of a device that another VM serves: -EPERM; of one that is not
     * there, or not any more: -ENOENT; before it is offered: -EINVAL. */
    /* () -> port, raised when a device that this VM serves comes, goes, or changes its Status */
    TAKT_HC_BACK_PORT = 16,
    TAKT_HC_BACK_LIST = 17, /* (index, gpa of struct takt_back) -> 0; -ENOENT: there are no more */
    /* (handle, gpa of struct takt_offer) -> own port, joined with the device's: raised by
     * QueueNotify, and when Status changes. The front end sees the device from now on. Again:
     * only `config` may differ, else -EBUSY; the front end is told. */
    TAKT_HC_BACK_OFFER = 18,
    /* (handle, gpa of struct takt_front, resets) -> 0. If `resets` is the number of resets so
     * far, this VM has let go of all rings of before. */
    TAKT_HC_BACK_STATE = 19,
    /* (handle, gpa of struct takt_window) -> 0: the front VM's RAM is mapped; the same window
     * for all its devices. -ENOMEM; -ENOSPC: no room below the CPU's limit. */
    TAKT_HC_BACK_MAP = 20,
    TAKT_HC_BACK_UNMAP = 21,  /* (handle, also of a VM that is gone) -> 0; -ENOENT: no window */
    TAKT_HC_BACK_IRQ = 22,    /* (handle) -> 0: buffers were used */
    TAKT_HC_BACK_BROKEN = 23, /* (handle) -> 0: the device needs reset, and the front end is told */
    TAKT_HC_PCI_INFO = 24,    /* (index, gpa of struct takt_pci) -> 0; -ENOENT: there are no more */
    /* (index) -> 0: its interrupt line may interrupt again; MSI needs none */
    TAKT_HC_PCI_EOI = 25,
    /* (index, offset, 1, 2 or 4 bytes) -> value from its configuration space */
    TAKT_HC_PCI_READ = 26,
    /* (index, offset, bytes, value) -> 0; -EPERM: that could hurt others */
    TAKT_HC_PCI_WRITE = 27,

    /* The store: <takt/store_wire.h>, the page at `gpa`, which is 4 KiB of RAM, aligned. */
    /* (gpa) -> port, raised when there is something to take from the page, or room in it again.
     * Once more: the connection begins anew; -EAGAIN: soon. -ENODEV: the operator has withdrawn
     * it. */
    TAKT_HC_STORE_CONNECT = 28,
    /* () -> 1: look at the page, 0: nothing has moved yet. Requests have been put there, or
     * replies taken. What is answered at once raises no event. -ENOENT: not connected. */
    TAKT_HC_STORE_NOTIFY = 29,

    TAKT_HC_CONTROL = 64, /* 64..127 are for a privileged VM: -EPERM from others */
    TAKT_HC_CONTROL_LAST = 127,
};

#define TAKT_IO_REPORT_MAX 1000000u
#define TAKT_IO_BUSY       500u /* clean-ups a second, receiving and sending apart */

enum takt_shutdown { TAKT_SHUTDOWN_POWEROFF, TAKT_SHUTDOWN_REBOOT, TAKT_SHUTDOWN_CRASH };

/* Optional devices, as QEMU has them: a byte written to TAKT_DEBUGCON_PORT goes to the VM's
 * console; `outl x` to TAKT_DEBUG_EXIT_PORT ends the VM with exit code x. (QEMU itself then ends
 * with (x << 1) | 1.) */
#define TAKT_DEBUGCON_PORT   0xe9
#define TAKT_DEBUG_EXIT_PORT 0xf4
#define TAKT_UART_PORT       0x3f8

#endif
