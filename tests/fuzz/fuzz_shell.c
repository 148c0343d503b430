/* The shell gets any bytes as if somebody had typed them, on a machine with two VMs and a second
 * pool. It has to come back to its prompt afterwards: an operator has no other way to the
 * machine. */
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include "../unit/shell_rig.h"

extern jmp_buf fake_power_exit;
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct config cfg;

static void again(const char *line) {
    const char *said = rig_say(line);

    if (!strstr(said, "takt> ")) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool started;

    if (size > 2000) return 0;
    if (!started) {
        rig_start(&cfg, "[vm one]\nimage = null\nmemory = 2M\n[vm two]\nimage = null\nmemory = "
                        "2M\nvcpus = 2\n");
        started = true;
    }
    again("create one");
    if (setjmp(fake_power_exit) == 0) {
        for (size_t i = 0; i < size; i += 100) {
            console_input((const char *)data + i, (unsigned)MIN(size - i, 100u));
            rig_run(1000);
        }
        rig_run(3 * NS_PER_MS);
    } else {
        fake_work_resume(); /* the machine is still there, unlike after a real end */
    }
    console_input("\x1d\x03\r", 3); /* as taktctl begins */
    rig_run(NS_PER_MS);
    again("list -j");
    if (!strstr(fake_console_text, "\x1e{\"id\": \"\", \"command\": \"list\", \"error\": 0"))
        abort();
    return 0;
}
