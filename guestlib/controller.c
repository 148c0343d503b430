/* The NVMe controller of a driver domain. guest/controller.h has the contracts. */
#include <guest/controller.h>
#include <guest/device.h>
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/time.h>
#include <takt/errno.h>

static struct nvme_store store;
static struct takt_pci pci; /* id 0: there is no controller */
static u32 index;           /* of TAKT_HC_PCI_* */
static u64 dma_offset;      /* the same for all of our RAM */
static bool told;           /* that it is broken */

bool controller_present(void) { return pci.id; }

/* Reads what the command line says of the controller, such as nvme=bw=200M,queue=32. */
static void controller_read_cmdline(void) {
    static const struct option_kind known[] = {
        { "bw", OPTION_NUMBER },
        { "queue", OPTION_NUMBER },
        { NULL, 0 },
    };
    char words[64];
    const char *strange;

    if (!cmdline_str(CONTROLLER_NAME, words, sizeof(words))) return;
    for (char *p = words; *p; p++)
        if (*p == ',') *p = ' ';
    strange = option_unknown(words, known);
    if (strange) printf("iodom: device %s: what is \"%s\"?\n", CONTROLLER_NAME, strange);
    nvme_store_describe(&store, option_number(words, "bw", 0),
                        (u32)MIN(option_number(words, "queue", 0), (u64)NVME_QUEUE));
}

const struct disk_load *controller_load(void) { return &store.load; }

static u64 dma_addr(const void *p) { return (u64)p + dma_offset; }

/* Sets up the NVMe controller that was given to this VM, and says on the console what came of it. A
 * second one is not used, because there are variables for one only. */
void controller_add(const struct takt_pci *p, u32 i) {
    const struct device_env env = { dma_addr, time_ns, guest_env.relax };
    int error;

    if (pci.id) {
        printf("iodom: NVMe controller " BDF ": one is enough, this one is not used\n", BDF_OF(p));
        return;
    }
    dma_offset = p->dma_offset;
    error =
        nvme_store_init(&store, (volatile void *)p->bar[0].addr, p->bar[0].size, &env, &guest_env);
    if (error) {
        printf("iodom: NVMe controller " BDF ": %s\n", BDF_OF(p),
               error == -ENOMEM ? "no memory for it" : store.nvme.why);
        return;
    }
    controller_read_cmdline();
    pci = *p;
    index = i;
    printf("iodom: NVMe controller " BDF ": %lu KiB\n", BDF_OF(p), store.nvme.blocks / 2);
}

/* Returns the range of the controller's disk that info->options ask for. If it cannot be had,
 * returns NULL, and the console says why. */
struct disk *controller_open(const struct takt_back *info) {
    struct disk *d;

    if (!pci.id) {
        printf("iodom: %s.%u: no NVMe controller was given to this VM\n", info->name, info->number);
        return NULL;
    }
    d = nvme_store_open(&store, info);
    if (!d && store.other)
        printf("iodom: %s.%u: %s %s.%u\n", info->name, info->number, store.why, store.other->name,
               store.other->number);
    else if (!d)
        printf("iodom: %s.%u: %s\n", info->name, info->number, store.why);
    return d;
}

/* Takes the controller's interrupt and the commands that have ended. Returns whether any has. The
 * interrupt's line falls when all that has ended was taken. */
bool controller_run(u64 now) {
    bool interrupted = event_take(pci.port), ended = nvme_store_run(&store, now);

    if (interrupted) hypercall1(TAKT_HC_PCI_EOI, index);
    if (store.nvme.why && !told)
        printf("iodom: NVMe controller " BDF ": %s; its disks give errors\n", BDF_OF(&pci),
               store.nvme.why);
    told = store.nvme.why;
    return ended;
}

u64 controller_kick(void) {
    nvme_kick(&store.nvme);
    return nvme_due(&store.nvme);
}
