/* The machine's RAM is a file in memory, so that one page of it can be mapped at several addresses:
 * the hypervisor has all of it in one piece, and each VM has what its second-level tables map, in
 * an address range of its own (port.h). A page is mapped when the guest first touches it, as a CPU
 * fills its TLB: the host's page fault is a signal, and its handler looks into the VM's tables.
 * whole.h has the contracts. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "lib/printf.h"
#include "mm/frame.h"
#include "tests/whole/faults.h"
#include "tests/whole/whole.h"

#define RAM_FROM SIZE_2M           /* physical address 0 stands for "none" in many places */
#define RAM_AT   0x101000000000ull /* where the hypervisor has physical address 0 */

static int ram = -1;
static u64 ram_end; /* physical */

static void fail(const char *what) {
    perror(what);
    exit(2);
}

static void map(u64 at, u64 len, hpa_t pa, bool writable) {
    int prot = PROT_READ | PROT_EXEC;

    if (writable) prot |= PROT_WRITE;
    if (mmap((void *)at, len, prot, MAP_SHARED | MAP_FIXED, ram, (off_t)pa) == MAP_FAILED)
        fail("mmap of guest memory");
}

/* Maps the page of the VM at `gpa`, and those behind it in the same 2 MiB that are behind it in
 * memory, too. Returns false if the VM has nothing there, or may not write. */
static bool fill(const struct virt_vcpu *v, gpa_t gpa, bool write) {
    const struct npt *t = &v->vm->npt;
    gpa_t page = ALIGN_DOWN(gpa, PAGE_SIZE), end = ALIGN_DOWN(gpa, SIZE_2M) + SIZE_2M;
    bool writable, other;
    hpa_t pa = npt_find(t, page, &writable);
    u64 len = PAGE_SIZE;

    if (pa == HPA_NONE || (write && !writable)) return false;
    while (page + len < end && npt_find(t, page + len, &other) == pa + len && other == writable)
        len += PAGE_SIZE;
    map(whole_base_of(v) + page, len, pa, writable);
    return true;
}

bool faults_fill(u64 at, bool write, u64 *gpa) {
    if (!whole_guest) return false;
    *gpa = at; /* what is not in the VM's range is an address that the guest took for its own */
    if (at - whole_base_of(whole_guest) >= PORT_SPAN) return false;
    *gpa = at - whole_base_of(whole_guest);
    return fill(whole_guest, *gpa, write);
}

bool faults_in_guest(void) { return whole_guest; }

void memory_forget(const struct virt_vcpu *v) {
    if (munmap((void *)whole_base_of(v), PORT_SPAN)) fail("munmap of guest memory");
}

bool memory_drop(void *at, u64 bytes) {
    u64 pa = (u64)at - RAM_AT;

    if (pa < RAM_FROM || pa >= ram_end || (pa | bytes) % PAGE_SIZE) return false;
    return !fallocate(ram, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)pa, (off_t)bytes);
}

void memory_start(u64 bytes) {
    ram = memfd_create("ram", MFD_CLOEXEC);
    if (ram < 0 || ftruncate(ram, (off_t)(RAM_FROM + bytes))) fail("memory for the machine");
    directmap_base = RAM_AT;
    if (mmap((void *)(RAM_AT + RAM_FROM), bytes, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED_NOREPLACE, ram, (off_t)RAM_FROM) == MAP_FAILED)
        fail("mmap of the machine's memory");
    ram_end = RAM_FROM + bytes;
    frame_add(RAM_FROM, RAM_FROM + bytes);
    faults_catch();
}
