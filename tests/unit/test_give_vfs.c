/* Virtual functions are given to VMs, even while these run, and are taken away. Also the reset
 * of the card that has them. */
#include <string.h>
#include <takt/device.h>
#include <takt/errno.h>

#include "give_rig.h"
#include "passthrough/mediate.h"
#include "pci/sriov.h"

#define CARD PCI_BDF(1, 0, 0)
#define VF0  (CARD + 0x80)

static struct fake_pci *card, *vf;

static void card_init(void) {
    struct fake_pci *port = fake_pci_add(PCI_BDF(0, 8, 0), 0x000c1b36, 0x06040000);

    port->space[PCI_HEADER] = 1;
    port->space[PCI_SECONDARY] = port->space[PCI_SUBORDINATE] = 1;
    fake_set(port, PCI_WINDOW, 4, 0xfe50fe40);
    fake_pci_cap(port, 0x54, PCI_CAP_EXPRESS);
    fake_pci_extended(port, 0x148, PCI_EXT_ACS);
    fake_set(port, 0x14c, 2, 0x7f);
    port->writable[0x14e] = 0x7f;
    card = fake_pci_add(CARD, 0x10c98086, 0x02000001);
    fake_pci_bar(card, 0, 0xfe400000, 0x20000, 0);
    fake_pci_cap(card, 0xa0, PCI_CAP_EXPRESS);
    fake_set(card, 0xa4, 4, BIT(28));
    fake_set(card, PCI_LINE, 2, 0);
    vf = &fake_device[fake_nr_devices];
    fake_pci_sriov(card, 0x160, 8, 0x80, 2);
    for (u32 i = 0; i < 8; i++) {
        fake_pci_cap(&vf[i], 0x70, PCI_CAP_MSIX);
        fake_set(&vf[i], 0x72, 2, 2);
        fake_set(&vf[i], 0x74, 4, 3);
    }
    pci_enumerate();
    assert_true(sriov_enable(3));
    sriov_find();
    give_init(&acpi, &ram);
    fake_machine_gives(&pci_claim_part, &pci_part);
    config.nr_pci = 0;
    no_vms();
}

static void wants(const char *text) {
    u64 asked;

    assert_int_equal(config_vf(text, &asked), 0);
    config.pci[config.nr_pci++] = asked;
}

static void test_virtual_functions(void **state) {
    struct vm *vm, *other;

    card_init();
    wants("igb0/any");
    wants("igb0/any@3999");
    vm = driver();
    assert_int_equal(vm->pci[1]->burst, 3);
    assert_int_equal(vm->pci[0]->pci->bdf, VF0);
    assert_int_equal(vm->pci[1]->pci->bdf, VF0 + 2);
    assert_int_equal(vm->pci[0]->burst, 8);
    assert_int_equal(fake_get(&vf[0], PCI_COMMAND, 2) & 7, 6);
    assert_int_equal(vf[0].resets, 1);
    assert_int_equal(npt_lookup(&vm->virt.npt, vm->pci[1]->pci->bar[0].addr, NULL),
                     vm->pci[1]->pci->bar[0].addr);
    assert_int_equal(npt_lookup(&vm->virt.npt, vm->pci[1]->pci->bar[0].addr + 0x4000, NULL),
                     HPA_NONE); /* the next one's */
    strcpy(config.head.name, "other");
    refused(-ENOENT, "no free virtual function matches the one that is asked for");
    config.nr_pci = 0;
    wants("01:00.0/1");
    refused(-EBUSY, "PCI device 01:10.2 belongs to driver");
    config.pci[0] = CARD;
    fake_destroy(vm);
    /* A VM gets the card itself. The reset takes the virtual functions away, and they come back. */
    other = driver();
    assert_int_equal(card->resets, 1);
    assert_int_equal(fake_get(card, 0x168, 2), 9);
    fake_destroy(other);
}

/* A virtual function that does not come back is not given to any VM. Another one takes its
 * place. */
static void test_lost(void **state) {
    struct vm *vm;

    card_init();
    wants("igb0/any");
    vf[0].silent_ns = 3600 * NS_PER_S;
    assert_null(fake_vm(&config));
    assert_int_equal(fake_error, -EIO);
    assert_string_equal(fake_why, "PCI device 01:10.0: it did not come back from its reset");
    vm = driver();
    assert_int_equal(vm->pci[0]->pci->bdf, VF0 + 2);
    fake_destroy(vm);
    config.nr_pci = 0;
    wants("igb0/0");
    refused(-EINVAL, "PCI device 01:10.0: it did not come back from its reset");
}

static int attach(struct vm *vm, const char *text) {
    u64 asked, at;
    int r;

    assert_int_equal(config_vf(text, &asked), 0);
    fake_clock(1000);
    do {
        at = 0;
        r = give_attach(vm, asked, &at);
        if (at) fake_clock(at);
    } while (r > 0);
    return r;
}

static int take_away(struct vm *vm, u32 bdf, bool force, u32 *steps) {
    u64 at;
    int r;

    fake_clock(1000);
    *steps = 0;
    do {
        at = 0;
        r = give_detach(vm, bdf, force, &at);
        if (at) fake_clock(at);
        ++*steps;
    } while (r > 0);
    return r;
}

static void says(struct vm *vm, u32 index, const char *what) {
    char text[32] = "?";

    pci_nodes->tell(vm, index, text, sizeof(text));
    assert_string_equal(text, what);
}

static void test_hot(void **state) {
    struct assignment *a;
    struct takt_pci info;
    struct vm *vm;
    u32 steps, ports = 0;

    card_init();
    vm = driver();
    says(vm, 0, "");
    for (u32 round = 0; round < 3; round++) {
        assert_int_equal(attach(vm, "igb0/any"), 0);
        assert_int_equal(attach(vm, "igb0/any"), 0);
        a = vm->pci[1];
        assert_int_equal(a->pci->bdf, VF0 + 2);
        says(vm, 1, "01:10.2 given");
        assert_int_equal(give_info(vm, 1, 0x3000), 0);
        guestmem_read(&vm->mem, 0x3000, &info, sizeof(info));
        assert_int_equal(info.bdf, VF0 + 2);
        if (!round) ports = info.port;
        assert_int_equal(info.port, ports); /* none is lost */
        assert_int_equal(fake_get(&vf[1], PCI_COMMAND, 2) & 7, 6);
        assert_int_equal(pci_nodes->let_go(vm, 1), -EINVAL); /* nobody asked */
        assert_int_equal(take_away(vm, VF0 + 2, false, &steps), 0);
        assert_in_range(steps, 200, 300); /* two seconds to let go */
        assert_null(a->owner);
        assert_int_equal(fake_get(&vf[1], PCI_COMMAND, 2) & 7, 2);
        assert_int_equal(npt_lookup(&vm->virt.npt, a->pci->bar[0].addr, NULL), HPA_NONE);
        assert_int_equal(give_info(vm, 1, 0x3000), -ENOENT);
        assert_int_equal(give_eoi(vm, 1), -ENOENT);
        assert_int_equal(give_read(vm, 1, 0, 4), -ENOENT);
        assert_int_equal(give_write(vm, 1, 4, 2, 6), -ENOENT);
        /* A handler that found the function before it was taken away is refused, too. */
        assert_int_equal(mediate_write(a, 4, 2, fake_get(&vf[1], 4, 2) | PCI_COMMAND_MASTER),
                         -EPERM);
        says(vm, 1, "");
        assert_int_equal(take_away(vm, VF0, true, &steps), 0);
        assert_in_range(steps, 1, 30);
        assert_int_equal(fake_vectors_used, 0);
        assert_int_equal(vf[1].resets, 2 * (round + 1));
    }
    assert_int_equal(take_away(vm, VF0, true, &steps), -ENOENT);
    for (u32 i = 0; i < 3; i++) assert_int_equal(attach(vm, "igb0/any"), 0);
    assert_int_equal(attach(vm, "igb0/any"), -ENOENT);
    vf[1].silent_ns = 3600 * NS_PER_S;
    assert_int_equal(take_away(vm, VF0 + 2, true, &steps), 0); /* also if it does not come back */
    assert_true(pci_find(VF0 + 2)->lost);
    assert_int_equal(attach(vm, "igb0/any"), -ENOENT);
    fake_destroy(vm); /* with a gap */
    assert_null(assignment_of(pci_find(VF0))->owner);
}

/* A VM that is made anew has what it had at its end. */
static void test_made_anew(void **state) {
    struct vm *vm;
    u32 steps;

    card_init();
    wants("igb0/any@3000");
    wants("igb0/2");
    config.on_crash = ON_CRASH_RESTART;
    vm = driver();
    assert_int_equal(take_away(vm, VF0 + 4, true, &steps), 0);
    assert_int_equal(attach(vm, "igb0/1"), 0);
    vm_crash(vm, "of something");
    vm_put(vm);
    fake_work();
    vm = vm_find("driver");
    assert_int_equal(vm->state, VM_RUNNING);
    assert_int_equal(vm->nr_pci, 2);
    assert_ptr_equal(vm->pci[0]->pci, pci_find(VF0));
    assert_ptr_equal(vm->pci[1]->pci, pci_find(VF0 + 2));
    assert_int_equal(vm->pci[0]->burst, 3);
    assert_int_equal(vm->pci[1]->burst, 8);
    assert_null(assignment_of(pci_find(VF0 + 4))->owner);
    assert_int_equal(take_away(vm, VF0, true, &steps), 0);
    assert_int_equal(take_away(vm, VF0 + 2, true, &steps), 0);
    vm_crash(vm, "of something");
    vm_put(vm);
    fake_work();
    vm = vm_find("driver");
    assert_int_equal(vm->nr_pci, 0);
    fake_destroy(vm);
}

/* Makes a VM that has a virtual function, and another one that gets the card and is in the middle
 * of the card's reset. */
static struct vm *card_is_reset(struct vm **second) {
    struct vm *vm;

    card_init();
    wants("igb0/1");
    vm = driver();
    memset((void *)vm->pci[0]->pci->msix_table, 0xff, 48);
    strcpy(config.head.name, "second");
    config.pci[0] = CARD;
    assert_int_equal(vm_create(&config, NULL, NULL), 0);
    fake_work_due();
    *second = vm_find("second");
    assert_int_equal(card->resets, 1);
    return vm;
}

static u32 vf_command(void) { return pci_read(VF0 + 2, PCI_COMMAND, 2) & 7; }

/* When the card is reset, a VM that has one of its functions is told, waits, and goes on. */
static void test_card_reset_under_a_vm(void **state) {
    struct vm *second, *vm = card_is_reset(&second);
    struct assignment *a = vm->pci[0];

    says(vm, 0, "01:10.2 reset");
    assert_false(a->pci->msix_table[12] == 0);
    assert_int_equal(mediate_write(a, 4, 2, PCI_COMMAND_MASTER), -EPERM);
    /* The function must not become a bus master, not even before it was reset. */
    assert_false(fake_get(&vf[1], PCI_COMMAND, 2) & PCI_COMMAND_MASTER);
    fake_interrupt(a->entry[0].vector);
    fake_work();
    assert_int_equal(second->state, VM_RUNNING);
    says(vm, 0, "01:10.2 given");
    assert_int_equal(vf_command(), 6);
    assert_int_equal(fake_get(&vf[1], 0x72, 2) & 0xc000, 0x8000);
    for (u32 n = 0; n < 3; n++) {
        assert_int_equal(entry_word(vm, n, 0), 0xfee00000 | vm->vcpu[0]->sched.cpu << 12);
        assert_int_equal(entry_word(vm, n, 8), a->entry[n].vector);
        assert_int_equal(entry_word(vm, n, 12), n > 0);
    }
    assert_int_equal(mediate_write(a, 4, 2, vf_command() | PCI_COMMAND_NO_INTX), 0);
    fake_destroy(second); /* and once more */
    assert_int_equal(card->resets, 2);
    assert_int_equal(vf_command(), 6);
    assert_int_equal(pci_read(VF0, PCI_COMMAND, 2) & 7, 2); /* nobody has this one */
    fake_destroy(vm);
    assert_int_equal(vf_command(), 2);
    vm_put(second);
}

/* A VM that has stopped, or is being destroyed, gets nothing back. */
static void test_card_reset_at_the_end(void **state) {
    struct vm *second, *vm = card_is_reset(&second);

    vm->config.on_crash = ON_CRASH_PRESERVE;
    vm_crash(vm, "of something");
    fake_work();
    assert_int_equal(vf_command(), 2);
    vm_destroy(vm, NULL, NULL);
    vm_destroy(second, NULL, NULL); /* both at once */
    fake_work();
    assert_int_equal(vf_command(), 2);
    assert_null(assignment_of(pci_find(VF0 + 2))->owner);
    vm_put(second);
    vm_put(vm);
}

/* A function that the card does not give back is lost, both for the VM that has it and for all
 * others. */
static void test_card_does_not_come_back(void **state) {
    struct vm *second, *vm = card_is_reset(&second);

    card->silent_until = ~0ull;
    fake_work();
    assert_int_equal(second->state, VM_DYING);
    assert_true(pci_find(CARD)->lost);
    says(vm, 0, "01:10.2 lost");
    assert_int_equal(fake_get(&vf[1], PCI_COMMAND, 2) & 7, 0);
    strcpy(config.head.name, "third");
    config.nr_pci = 0;
    wants("igb0/any");
    refused(-ENOENT, "no free virtual function matches the one that is asked for");
    fake_destroy(vm);
    vm_put(second);
}

/* The card begins its reset when all is ready but the function is not switched on yet. */
static struct vm *card_in_between(struct vm *vm) {
    assert_int_equal(vm->pci[0]->part, 6);
    assert_true(vm->pci[0]->pci->was_reset);
    strcpy(config.head.name, "second");
    config.nr_pci = 1;
    config.pci[0] = CARD;
    assert_int_equal(vm_create(&config, NULL, NULL), 0);
    fake_work_due();
    assert_true(pci_find(CARD)->in_reset);
    return vm_find("second");
}

static void test_waits_for_the_card(void **state) {
    struct vm *vm, *second;

    card_init();
    wants("igb0/any");
    assert_int_equal(vm_create(&config, NULL, NULL), 0);
    vm = vm_find("driver");
    while (!vm->pci[0] || vm->pci[0]->part < 6) work_run();
    vm->job.work.not_before = ~0ull; /* its turn comes late */
    second = card_in_between(vm);
    vm->job.work.not_before = 0;
    fake_work_due();
    assert_int_equal(vm->state, VM_CREATING);
    assert_in_range(vm->job.work.not_before, fake_now + 1, fake_now + NS_PER_S);
    fake_work();
    assert_int_equal(vm->state, VM_RUNNING);
    assert_int_equal(pci_read(VF0, PCI_COMMAND, 2) & 7, 6);
    fake_destroy(vm);
    fake_destroy(second);
}

/* A VM is given a function while it runs, and waits for the card's reset in the same way. If
 * `silent`, the card never comes back, and the VM does not get the function. */
static void hot_waits(bool silent) {
    u64 asked = CONFIG_VF | CONFIG_VF_NAMED | CONFIG_VF_ANY;
    struct vm *vm, *second;
    u64 at = 0;
    int r;

    card_init();
    vm = driver();
    while (!vm->pci[0] || vm->pci[0]->part < 6) assert_int_equal(give_attach(vm, asked, &at), 1);
    second = card_in_between(vm);
    at = 0;
    assert_int_equal(give_attach(vm, asked, &at), 1);
    assert_in_range(at, fake_now + 1, fake_now + NS_PER_S);
    card->silent_until = silent ? ~0ull : 0;
    fake_work();
    while ((r = give_attach(vm, asked, &at)) > 0) fake_pass(vm->vcpu[0]->sched.cpu);
    assert_int_equal(r, silent ? -EIO : 0);
    if (silent)
        assert_string_equal(vm->why, "PCI device 01:10.0: it did not come back from its reset");
    if (!silent) assert_int_equal(pci_read(VF0, PCI_COMMAND, 2) & 7, 6);
    fake_destroy(vm);
    silent ? vm_put(second) : fake_destroy(second);
}

static void test_hot_waits_for_the_card(void **state) { hot_waits(false); }

static void test_hot_waits_in_vain(void **state) { hot_waits(true); }

/* The card is left in its reset, as the operator has stopped what reset it: no function is lost
 * by that. */
static void test_card_stays_in_reset(void **state) {
    struct vm *vm;
    u64 at = 0;

    card_init();
    vm = driver();
    for (u32 i = 0; i < 2; i++) assert_int_equal(give_attach(vm, CARD, &at), 1);
    give_stop();
    strcpy(config.head.name, "second");
    wants("igb0/any");
    refused(-EAGAIN, "PCI device 01:10.0: its physical function stays in its reset");
    assert_false(pci_find(VF0)->lost);
    assert_null(assignment_of(pci_find(VF0))->owner);
    fake_destroy(vm);
    fake_destroy(driver());
}

static void test_hot_no_memory(void **state) {
    static hpa_t held[FAKE_RAM / PAGE_SIZE];
    struct vm *vm;
    u32 n = 0;

    card_init();
    vm = driver();
    strcpy(vm->why, "something of before");
    while ((held[n] = frame_alloc(0)) != HPA_NONE) n++;
    assert_int_equal(attach(vm, "igb0/any"), -ENOMEM);
    assert_string_equal(vm->why, "there is not enough free memory for it");
    assert_null(assignment_of(pci_find(VF0))->owner);
    while (n) frame_free(held[--n], 0);
    fake_destroy(vm);
}

/* The VM lets go of the function at once. Or the VM is destroyed in between. What fails is
 * undone. */
static void test_hot_ends(void **state) {
    struct vm *vm;
    u32 steps;
    u64 at = 0;

    card_init();
    vm = driver();
    assert_int_equal(attach(vm, "igb0/any"), 0);
    assert_int_equal(give_detach(vm, VF0, false, &at), 1);
    says(vm, 0, "01:10.0 leaving");
    assert_int_equal(pci_nodes->let_go(vm, 0), 0);
    assert_int_equal(take_away(vm, VF0, false, &steps), 0);
    assert_in_range(steps, 1, 30);

    vf[0].silent_ns = 3600 * NS_PER_S;
    assert_int_equal(attach(vm, "igb0/0"), -EIO);
    assert_null(assignment_of(pci_find(VF0))->owner);
    says(vm, 0, "");
    assert_int_equal(attach(vm, "igb0/0"), -EINVAL);

    assert_int_equal(give_attach(vm, CONFIG_VF | CONFIG_VF_NAMED | CONFIG_VF_ANY, &at), 1);
    vm_destroy(vm, NULL, NULL);
    assert_int_equal(give_attach(vm, CONFIG_VF | CONFIG_VF_NAMED | CONFIG_VF_ANY, &at), -EAGAIN);
    give_stop();
    fake_work();
    vm_put(vm);
    assert_null(assignment_of(pci_find(VF0 + 2))->owner);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_virtual_functions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hot, setup, teardown),
        cmocka_unit_test_setup_teardown(test_made_anew, setup, teardown),
        cmocka_unit_test_setup_teardown(test_card_reset_under_a_vm, setup, teardown),
        cmocka_unit_test_setup_teardown(test_card_reset_at_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_card_does_not_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_waits_for_the_card, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hot_waits_for_the_card, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hot_waits_in_vain, setup, teardown),
        cmocka_unit_test_setup_teardown(test_card_stays_in_reset, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hot_no_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hot_ends, setup, teardown),
    };

    return cmocka_run_group_tests(tests, group_setup, NULL);
}
