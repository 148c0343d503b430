/* What a guest and the simulated machine know of each other (docs/simulation.md). Both sides
 * include this header. A *port* belongs to one vCPU. An *exit* is a call: the guest fills in a
 * struct whole_call and hands it over; when the call returns, the hypervisor has handled the exit,
 * and virtual time has passed. */
#ifndef TESTS_WHOLE_PORT_H
#define TESTS_WHOLE_PORT_H

#include <takt/types.h>

/* All ranges are above the shadow memory of AddressSanitizer, and below where programs are.
 * There are at most PORT_VMS VMs at a time. The guest-physical addresses of the n-th of them begin
 * at PORT_BASE + n * PORT_SPAN. TAKT_FOREIGN_GPA, where a back end sees the RAM of others, is in
 * the middle of them. */
#define PORT_BASE 0x110000000000ull
#define PORT_SPAN (1ull << 39)
#define PORT_VMS  128u

#define PS_PER_NS 1000

enum whole_reason {
    WHOLE_TIME,   /* all of port->left was used */
    WHOLE_WINDOW, /* interrupts were switched on while port->attention was set */
    /* The guest only computes, for `gpa` ns or, if that is ~0, for ever. It need not execute until
     * then, and returns from the call earlier if it has an interrupt to take. */
    WHOLE_COMPUTE,
    WHOLE_CPUID,
    WHOLE_HYPERCALL,
    WHOLE_RDMSR,
    WHOLE_WRMSR,
    WHOLE_PORT_IO, /* port, size, in */
    WHOLE_MMIO,    /* gpa, write, bytes: the instruction, whose operands are RAX and (RDX) */
    WHOLE_FAULT,   /* gpa, write: an access to what is not there; the call does not return */
    WHOLE_HLT,
};

/* In the order in which instructions number the registers. */
enum { PORT_RAX, PORT_RCX, PORT_RDX, PORT_RBX, PORT_RSI = 6, PORT_GPRS = 16 };

struct whole_call {
    enum whole_reason reason;
    u16 port;
    u8 size; /* bytes */
    bool in, write;
    u8 nr_bytes;
    u8 bytes[15];
    u64 gpa;
    u64 rip; /* where in the guest's code the call was made */
    /* Set by the machine: the hypervisor wants the guest to execute the instruction once more. */
    bool again;
    u64 gpr[PORT_GPRS];
};

struct whole_port {
    /* How long the guest may compute until the machine wants to look at it, in ps. Each
     * instruction of the guest takes `per_instruction` of it, and each element that a string
     * instruction copies or fills takes `per_element`. When it is below 0, the guest calls. */
    i64 left;
    i64 per_instruction, per_element;
    u64 end;        /* the virtual time at which `left` is 0, ps */
    u64 tsc_offset; /* of the VM, ns */
    u64 base;       /* where guest-physical address 0 is */
    void *area;     /* what GS would point to */
    bool irqs;      /* RFLAGS.IF */
    bool attention; /* the machine wants WHOLE_WINDOW */
    /* An interrupt or an exception that the guest has to take when a call returns. */
    bool event;
    u8 vector;
    u32 code; /* its error code */
    void (*call)(struct whole_call *c);
    /* Where the guest has the pointer to the port of the vCPU that runs. The guest sets it in its
     * first call; the machine changes the pointer before each entry. */
    struct whole_port **slot;
};

/* How many elements common/string.c copies or fills: words of 8 bytes, then the rest in bytes. */
static inline u64 whole_elements(u64 bytes) { return bytes / 8 + bytes % 8; }

/* What a guest writes to the page where its further vCPUs begin: the addresses of a function, and
 * of what `slot` above points to. */
struct whole_ap {
    u64 magic, entry, slot;
};
#define WHOLE_AP_MAGIC 0x7061656c6f6877ull

#endif
