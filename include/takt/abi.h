/* The interface between Takt and its guests: CPUID leaves, fixed guest-physical addresses, shared
 * pages, hypercalls.
 *
 * A guest makes a hypercall by VMCALL (Intel) or VMMCALL (AMD) at CPL 0 in protected or long mode;
 * CPUID leaf 0x40000001 says which of the two. EAX holds the number of the call, and EBX, ECX, EDX
 * and ESI hold the arguments. The result is in EAX: a number from 0 on, or a negative errno. In
 * 64-bit mode arguments and result have 64 bits. In any other mode they have 32 bits, and the upper
 * halves are ignored. No other register changes. At another CPL than 0 the result is -EPERM; in
 * real mode the instruction raises #UD. Pointers are guest-physical addresses. What they point to
 * must lie wholly in RAM; otherwise the result is -EFAULT. Strings need no terminator, and lengths
 * are in bytes. */
#ifndef TAKT_ABI_H
#define TAKT_ABI_H

#include <takt/types.h>

#define TAKT_ABI_VERSION 0x00010000u /* major << 16 | minor */

/* ---- CPUID, from 0x40000000. In a VM with `kernel` these leaves are TAKT_CPUID_PC further on,
 * because KVM's are there, for operating systems that look for them nowhere else ---- */
#define TAKT_CPUID_BASE 0x40000000u /* eax: highest leaf; ebx, ecx, edx: "TaktTaktTakt" */
/* eax: TAKT_ABI_VERSION; ebx: TAKT_FEAT_*; ecx: VM id; edx: vCPU id */
#define TAKT_CPUID_ABI  0x40000001u
#define TAKT_CPUID_TIME 0x40000002u /* eax: TSC kHz; ebx: LAPIC timer kHz before the divider */
/* eax: TAKT_SHARED_GPA; ebx: TAKT_INFO_GPA; ecx: number of vCPUs */
#define TAKT_CPUID_INFO 0x40000003u
/* eax, ebx: the seed of the machine (`seed` in [hypervisor]), low and high half; ecx, edx: the seed
 * of this VM, which follows from the machine's seed and the VM's name: <takt/seed.h> */
#define TAKT_CPUID_SEED   0x40000004u
#define TAKT_CPUID_PC     0x100u
#define TAKT_SIGNATURE    "TaktTaktTakt"

#define TAKT_FEAT_VMMCALL 0x1u /* the hypercall instruction is VMMCALL, not VMCALL */

/* ---- Guest-physical layout. RAM begins at 0. If the VM has more than TAKT_LOW_RAM_MAX, the rest
 * is from 4 GiB on ---- */
#define TAKT_LOW_RAM_MAX 0xc0000000ull
#define TAKT_HIGH_RAM    0x100000000ull
#define TAKT_IOAPIC_GPA  0xfec00000ull /* the IOAPIC of a VM that is a PC; else there is nothing */
#define TAKT_VIRTIO_GPA  0xfed00000ull /* virtio-mmio registers, 4 KiB for each device */
#define TAKT_SHARED_GPA  0xfed80000ull /* one struct takt_shared, read-write */
/* one struct takt_vcpu_info for each vCPU, 4 KiB apart, read-only */
#define TAKT_INFO_GPA      0xfed81000ull
#define TAKT_LAPIC_GPA     0xfee00000ull
#define TAKT_MAX_VCPUS     64
#define TAKT_MAX_PORTS     1024
#define TAKT_PORT_ANY      0xffffffffu
#define TAKT_VECTOR_NO_EOI 0x100u

/* The events of a VM, with a bit for each port. When an event comes, the hypervisor sets the port's
 * pending bit. If that bit was clear and the port is not masked, it raises the vector that is bound
 * to the port, on the vCPU that is bound to it. The guest clears the pending bit by a locked
 * instruction before it handles the event. If the guest clears a mask bit itself, an event that is
 * pending already is not delivered; TAKT_HC_EVTCHN_MASK unmasks and delivers. */
struct takt_shared {
    u64 pending[TAKT_MAX_PORTS / 64];
    u64 mask[TAKT_MAX_PORTS / 64];
};

/* The times of one vCPU. Readers use it as a sequence lock: `seq` is odd while the page changes,
 * and another number afterwards. The vCPU entered `state` when the guest's TSC was `since_tsc`; the
 * three sums do not contain the time since then. */
struct takt_vcpu_info {
    u32 seq;
    u32 state; /* TAKT_STATE_* */
    u64 since_tsc;
    u64 run_ns;      /* executing */
    u64 runnable_ns; /* ready, waiting for a pCPU: stolen time */
    u64 blocked_ns;  /* halted or waiting for an event */
    u64 tsc_khz;
    u64 wake_tsc; /* the guest's TSC at the last wake that made the vCPU runnable */
    u64 wakes;    /* how many such wakes there were */
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
    TAKT_HC_EVTCHN_ALLOC = 6, /* (id of the VM that may bind it) -> new port */
    TAKT_HC_EVTCHN_BIND = 7, /* (id of a VM, its port) -> new port, which is joined with that one */
    TAKT_HC_EVTCHN_SEND = 8, /* (port) -> 0; raises an event at the other end */
    TAKT_HC_EVTCHN_MASK = 9, /* (port, 0 or 1) -> 0; unmasking delivers an event that is pending */
    TAKT_HC_EVTCHN_CLOSE = 10, /* (port) -> 0 */
    /* (port, vCPU, vector 32..255, or 0 for none) -> 0; binds the port to a vCPU and a vector. With
     * TAKT_VECTOR_NO_EOI this vector of the vCPU is not in service after it was delivered, whatever
     * raised it. So its handler makes no EOI, which saves an exit. The same is true for another
     * vCPU from the time when the VM's parameter `route` first sends it this vector. */
    TAKT_HC_EVTCHN_VECTOR = 11,
    TAKT_HC_VCPU_INFO = 12, /* (vCPU, gpa of a struct takt_vcpu_info) -> 0 */
    /* (TAKT_SHUTDOWN_*, code, for a crash the address of the instruction or 0) -> does not return.
     * Takt logs the name of the function that contains the address. */
    TAKT_HC_SHUTDOWN = 13,
    /* (n <= TAKT_IO_REPORT_MAX) -> 0; the guest's driver reports that it took n device interrupts
     * since its last report which Takt did not see. They count as events that others raised. */
    TAKT_HC_IO_REPORT = 14,
    /* (1 or 0) -> 0; 1 says that this VM does more I/O than TAKT_IO_BUSY from now on, as its driver
     * counts clean-ups; 0 says that it does not any more. Takt counts events itself, and believes
     * the VM only if it gets at least half as many events. */
    TAKT_HC_IO_CLASS = 15,

    /* Devices: <takt/device.h>. The calls return
     *   -EPERM   another VM serves the device
     *   -ENOENT  there is no such device, or not any more
     *   -EINVAL  the device was not offered yet */
    /* () -> port; it is raised when a device that this VM serves comes, goes, or changes its
     * Status */
    TAKT_HC_BACK_PORT = 16,
    TAKT_HC_BACK_LIST = 17, /* (index, gpa of struct takt_back) -> 0; -ENOENT: there are no more */
    /* (handle, gpa of struct takt_offer) -> own port, which is raised by QueueNotify, and when
     * Status changes. From now on the front end sees the device. The call may be made again, to
     * change `config` and nothing else (otherwise -EBUSY); the front end is told then. */
    TAKT_HC_BACK_OFFER = 18,
    /* (handle, gpa of struct takt_front, resets) -> 0; writes what the driver has set up. If
     * `resets` is the number of resets so far, this VM says that it has let go of all rings from
     * before. */
    TAKT_HC_BACK_STATE = 19,
    /* (handle, gpa of struct takt_window) -> 0; maps the front VM's RAM. All devices of that VM
     * share one window. -ENOMEM: no memory; -ENOSPC: no room below the CPU's limit for
     * addresses. */
    TAKT_HC_BACK_MAP = 20,
    /* (handle, also of a VM that is gone) -> 0; -ENOENT: there is no window */
    TAKT_HC_BACK_UNMAP = 21,
    TAKT_HC_BACK_IRQ = 22,    /* (handle) -> 0; tells the front end that buffers were used */
    TAKT_HC_BACK_BROKEN = 23, /* (handle) -> 0; tells the front end that the device needs a reset */
    TAKT_HC_PCI_INFO = 24,    /* (index, gpa of struct takt_pci) -> 0; -ENOENT: there are no more */
    /* (index) -> 0; the device's interrupt line may interrupt again. Not needed for MSI and
     * MSI-X */
    TAKT_HC_PCI_EOI = 25,
    /* (index, offset, 1, 2 or 4 bytes) -> value from its configuration space */
    TAKT_HC_PCI_READ = 26,
    /* (index, offset, bytes, value) -> 0; -EPERM: VMs may not write that, as it could harm
     * others */
    TAKT_HC_PCI_WRITE = 27,

    /* The store: <takt/store_wire.h>. The page at `gpa` is 4 KiB of RAM, aligned to 4 KiB. */
    /* (gpa) -> port, which is raised when the page holds something for the guest, or has room
     * again. If the call is made again, a new connection begins. -EAGAIN: try again soon. -ENOMEM:
     * there is no memory for the hypervisor's part of it. -ENODEV: the operator has withdrawn the
     * connection. */
    TAKT_HC_STORE_CONNECT = 28,
    /* () -> 1 if the guest has to look at the page again, 0 if nothing has moved yet. The guest
     * makes this call when it has put requests into the page, or has taken replies out of it.
     * Replies that are there when the call returns raise no event. -ENOENT: there is no
     * connection. */
    TAKT_HC_STORE_NOTIFY = 29,

    TAKT_HC_CONTROL = 64, /* 64..127 are for a privileged VM; other VMs get -EPERM */
    TAKT_HC_CONTROL_LAST = 127,
};

#define TAKT_IO_REPORT_MAX 1000000u
#define TAKT_IO_BUSY       500u /* clean-ups a second; those of receiving and sending count apart */

enum takt_shutdown { TAKT_SHUTDOWN_POWEROFF, TAKT_SHUTDOWN_REBOOT, TAKT_SHUTDOWN_CRASH };

/* Two optional devices, which QEMU has, too. A byte that is written to TAKT_DEBUGCON_PORT goes to
 * the VM's console. `outl x` to TAKT_DEBUG_EXIT_PORT ends the VM with exit code x. (QEMU itself
 * would end with (x << 1) | 1.) */
#define TAKT_DEBUGCON_PORT   0xe9
#define TAKT_DEBUG_EXIT_PORT 0xf4
#define TAKT_UART_PORT       0x3f8

#endif
