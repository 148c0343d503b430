/* A hostile program in a Linux VM. It runs as root, and does for a while what root can do to the
 * (virtual) machine: `hostile WHAT SECONDS`, where WHAT is
 *   ports    reads and writes I/O ports at random, by iopl()
 *   msrs     reads and writes MSRs at random, by /dev/cpu/0/msr
 *   virtio   writes random values, also addresses of queues, to the registers of the virtio devices
 *            and rings their bells, by /dev/mem (the kernel needs iomem=relaxed)
 *   calls    hypercalls (VMCALL, VMMCALL). Takt takes them from ring 0 only, so each of them ends
 *            in a signal; a hostile kernel is the matter of guests/hostile.c
 * It says how many accesses it made. What ends the VM on purpose is left out: the ports by which a
 * PC is switched off or reset, and writes of MSRs that would crash this kernel before it could do
 * any harm. Built statically, as the RAM disk has no libraries (tools/linuxguest.py). */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PORTS       0x10000
#define UART        0x3f8 /* it would fill the console, by which the test hears */
#define UART_END    0x400
#define POWER       0x600 /* ports that switch the VM off or reset it (hv/image/firmware.h) */
#define POWER_END   0x610
#define VIRTIO      0xfed00000ul /* the first device (include/takt/abi.h), */
#define VIRTIO_STEP 0x1000u      /* and the room of each, */
#define REGISTERS   0x200u       /* of which its registers take so much */
#define DEVICES     2u
#define NOTIFY      0x50u /* QueueNotify: virtio 1.2, 4.2.2 */
#define BATCH       256

static uint64_t seed = 88172645463325252ull;
static sigjmp_buf after;

/* Returns the next number of Marsaglia's xorshift64, so that each run does the same. */
static uint64_t any(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static void caught(int number) {
    (void)number;
    siglongjmp(after, 1);
}

static int usable_port(unsigned port) {
    return (port < UART || port >= UART_END) && (port < POWER || port >= POWER_END);
}

/* Reads or writes one random I/O port, except those of the console and of the power switch. */
static void one_port(void) {
    unsigned port = any() % (PORTS - sizeof(uint32_t)); /* all of the access is below the limit */

    if (!usable_port(port)) return;
    switch (any() % 6) {
    case 0: inb((uint16_t)port); break;
    case 1: inw((uint16_t)port); break;
    case 2: inl((uint16_t)port); break;
    case 3: outb((uint8_t)any(), (uint16_t)port); break;
    case 4: outw((uint16_t)any(), (uint16_t)port); break;
    default: outl((uint32_t)any(), (uint16_t)port); break;
    }
}

/* Reads any MSR. Writes those that this kernel does not need to live. */
static void one_msr(int fd) {
    static const uint32_t ranges[] = { 0x0,   0x40,       0x170,      0x400,
                                       0x800, 0x4b564d00, 0xc0000080, 0xc0010000 };
    uint32_t msr = ranges[any() % 8] + any() % 128;
    uint64_t value = any();

    if (any() % 16 == 0) msr = (uint32_t)any();
    if (pread(fd, &value, sizeof(value), msr) != sizeof(value) || any() % 4) return;
    /* the machine checks' banks: no kernel relies on them while it runs */
    if (msr >= 0x400 && msr < 0x480) (void)!pwrite(fd, &value, sizeof(value), msr);
}

static void one_register(volatile uint8_t *base) {
    volatile uint8_t *device = base + any() % DEVICES * VIRTIO_STEP;
    uint32_t at = any() % REGISTERS & ~3u;

    if (any() % 4 == 0) at = NOTIFY;
    *(volatile uint32_t *)(device + at) = (uint32_t)any() >> any() % 32;
}

static void one_call(void) {
    if (sigsetjmp(after, 1)) return;
    if (any() % 2)
        __asm__ volatile(".byte 0x0f, 0x01, 0xc1" : : "a"(any()), "D"(any()), "S"(any()));
    else
        __asm__ volatile(".byte 0x0f, 0x01, 0xd9" : : "a"(any()), "D"(any()), "S"(any()));
}

static int fail(const char *what) {
    perror(what);
    return 1;
}

/* Attacks as the arguments say, until the time is over. */
int main(int argc, char **argv) {
    const char *what = argc == 3 ? argv[1] : "";
    time_t end = time(NULL) + (argc == 3 ? atoi(argv[2]) : 0);
    volatile uint8_t *base = NULL;
    uint64_t n = 0;
    int fd = -1;

    signal(SIGILL, caught);
    signal(SIGSEGV, caught);
    if (!strcmp(what, "ports")) {
        if (iopl(3)) return fail("iopl");
    } else if (!strcmp(what, "msrs")) {
        fd = open("/dev/cpu/0/msr", O_RDWR);
        if (fd < 0) return fail("/dev/cpu/0/msr");
    } else if (!strcmp(what, "virtio")) {
        fd = open("/dev/mem", O_RDWR | O_SYNC);
        if (fd < 0) return fail("/dev/mem");
        base = mmap(NULL, DEVICES * VIRTIO_STEP, PROT_READ | PROT_WRITE, MAP_SHARED, fd, VIRTIO);
        if (base == MAP_FAILED) return fail("mmap");
    } else if (strcmp(what, "calls") != 0) {
        fprintf(stderr, "expected: hostile ports|msrs|virtio|calls SECONDS\n");
        return 2;
    }
    printf("hostile: %s begins\n", what);
    fflush(stdout);
    while (time(NULL) < end) {
        for (int i = 0; i < BATCH; i++, n++) {
            if (base)
                one_register(base);
            else if (fd >= 0)
                one_msr(fd);
            else if (what[0] == 'p')
                one_port();
            else
                one_call();
        }
    }
    printf("hostile: %s ends after %lu\n", what, n);
    return 0;
}
