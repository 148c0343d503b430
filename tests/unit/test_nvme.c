/* The driver of NVMe controllers. A model plays the controller, and can be broken in many ways:
 * the driver must report each and never wait for ever. */
#include "nvme_model.h"

#define BUFFERS 130u
#define MEMORY  (NVME_MEMORY + BUFFERS * NVME_TRANSFER)

static u8 *memory;
static struct nvme disk;
static struct nvme_command command[BUFFERS];
static u32 ended, failed;

static void done(struct nvme_command *c, int error) {
    ended++;
    failed += error != 0;
    assert_true(!error || error == -EIO);
    c->done = NULL;
}

static int setup(void **state) {
    if (!memory) memory = aligned_alloc(4096, MEMORY);
    model_begin(memory, MEMORY);
    ended = failed = 0;
    srand(3);
    return 0;
}

static int init(void) { return nvme_init(&disk, model_regs, 0x2000, memory, &model_env); }

static void begin(void) {
    assert_int_equal(init(), 0);
    assert_null(disk.why);
}

static struct nvme_command *make(u32 i, enum nvme_op op, u64 first, u32 blocks) {
    command[i] =
        (struct nvme_command){ op, first, blocks, memory + NVME_MEMORY + i * NVME_TRANSFER, done };
    return &command[i];
}

static int submit(u32 i, enum nvme_op op, u64 first, u32 blocks) {
    return nvme_submit(&disk, make(i, op, first, blocks), model_time);
}

static void run_all(void) {
    nvme_kick(&disk);
    while (model_work(~0u)) {
        assert_true(nvme_run(&disk, model_time));
        nvme_kick(&disk);
    }
}

static void test_set_up(void **state) {
    begin();
    assert_int_equal(disk.blocks, MODEL_BLOCKS);
    assert_int_equal(disk.max_blocks, 128);
    assert_int_equal(disk.depth, NVME_QUEUE - 1);
    assert_true(disk.discards);
    assert_memory_equal(disk.serial, "disk of a test      ", 20);
    assert_int_equal(nvme_due(&disk), ~0ull);
    assert_false(nvme_run(&disk, 1000 * NS_PER_S)); /* an idle one is not asked anything */
}

/* 3.1.1: other sizes, and doorbells farther apart. */
static void small(u8 *page, u32 cns) {
    if (cns == 1) page[77] = 1, page[520] = 0;
}

static void test_small_controller(void **state) {
    model.cap = 1 | 1ull << 37 | 3ull << 32; /* two entries, one command */
    model.stride = 32;
    model.tweak = small;
    begin();
    assert_int_equal(disk.max_blocks, 16);
    assert_int_equal(disk.depth, 1);
    assert_int_equal(submit(0, NVME_READ, 0, 17), -EINVAL);
    assert_int_equal(submit(0, NVME_DISCARD, 0, 1), -EINVAL);
    for (u32 i = 0; i < 100; i++) {
        assert_int_equal(submit(0, NVME_WRITE, i, 16), 0);
        assert_int_equal(submit(1, NVME_FLUSH, 0, 0), -EBUSY);
        run_all();
    }
    assert_int_equal(ended, 100);
    assert_int_equal(failed, 0);
}

static void refused(const char *why) {
    assert_int_equal(init(), -ENODEV);
    assert_string_equal(disk.why, why);
    assert_false(model.cc & 1);
    assert_int_equal(nvme_submit(&disk, make(0, NVME_FLUSH, 0, 0), 0), -EIO);
    assert_false(nvme_run(&disk, 0));
    nvme_kick(&disk);
    model_begin(memory, MEMORY);
}

/* None of these brings the driver to touch what is not there. */
static void test_no_controller(void **state) {
    model.dead = true;
    assert_int_equal(init(), -ENODEV);
    assert_string_equal(disk.why, "it does not answer");
    model_begin(memory, MEMORY);
    assert_int_equal(nvme_init(&disk, model_regs, 0xfff, memory, &model_env), -ENODEV);
    assert_string_equal(disk.why, "it has too few registers");
    model.stuck = true;
    refused("it does not come out of reset");
    model.never_ready = true;
    refused("it does not become ready");
    model.status = 3; /* a fatal error from the start on */
    model.never_ready = true;
    refused("it does not become ready");
    assert_true(model_time < 3 * NS_PER_S); /* CAP.TO is half a second */
    model.cap &= ~(1ull << 37);
    refused("it has not the commands of a disk");
    model.cap |= 1ull << 48;
    refused("its pages are larger than 4 KiB");
    model.cap &= ~0xffffull;
    refused("its queues are too small");
    model.cap |= 15ull << 32;
    refused("its doorbells lie beyond its registers");
    model.silent = true;
    refused("it does not say what it is");
    model.refuses = 6;
    refused("it does not say what it is");
    model.refuses = 9;
    refused("it makes no queues");
    model.refuses = 5;
    refused("it makes no queues");
    model.refuses = 1;
    refused("it makes no queues");
}

static u32 bad_cns, bad_at, bad_bytes;
static u64 bad_value;

static void bad_field(u8 *page, u32 cns) {
    if (cns == bad_cns) memcpy(page + bad_at, &bad_value, bad_bytes);
}

static void test_rubbish_identity(void **state) {
    static const struct {
        u32 cns, at, bytes;
        u64 value;
        const char *why;
    } cases[] = {
        { 1, 512, 1, 0x77, "its queues have entries of another size" },
        { 1, 512, 1, 0x55, "its queues have entries of another size" },
        { 1, 513, 1, 0x55, "its queues have entries of another size" },
        { 1, 513, 1, 0x33, "its queues have entries of another size" },
        { 0, 0, 8, 0, "it has no namespace 1" },
        { 0, 0, 8, ~0ull, "it claims a size that there is not" },
        { 0, 0, 8, (1ull << 54) + 1, "it claims a size that there is not" },
        { 0, 25, 1, 0, "its format is none of those that it has" },
        { 0, 26, 1, 15, "its format is none of those that it has" },
        { 0, 26, 1, 0, "its blocks are not of 512 bytes without metadata" },
        { 0, 132, 1, 8, "its blocks are not of 512 bytes without metadata" },
        { 0, 134, 1, 0xff, "its blocks are not of 512 bytes without metadata" },
    };

    for (u32 i = 0; i < ARRAY_SIZE(cases); i++) {
        bad_cns = cases[i].cns;
        bad_at = cases[i].at;
        bad_bytes = cases[i].bytes;
        bad_value = cases[i].value;
        model.tweak = bad_field;
        refused(cases[i].why);
    }
    bad_cns = 1; /* 2^255 pages at a time */
    bad_at = 77;
    bad_bytes = 1;
    bad_value = 255;
    model.tweak = bad_field;
    begin();
    assert_int_equal(disk.max_blocks, 128);
}

/* Tests each length, and so each form of the list of pages. */
static void test_transfers(void **state) {
    begin();
    for (u32 blocks = 1; blocks <= 128; blocks++) {
        u8 *p = make(0, NVME_WRITE, 0, 0)->buffer;

        for (u32 i = 0; i < blocks * 512; i++) p[i] = (u8)(i * 7 + blocks + i / 4096);
        memset(model_disk, 0, sizeof(model_disk));
        assert_int_equal(submit(0, NVME_WRITE, 1000 + blocks, blocks), 0);
        run_all();
        assert_memory_equal(model_disk + (1000 + blocks) * 512, p, blocks * 512);
        assert_int_equal(
            model_disk[(1000 + blocks) * 512 - 1] | model_disk[(1000 + 2 * blocks) * 512], 0);
        memcpy(p + NVME_TRANSFER, p, NVME_TRANSFER);
        memset(p, 0, NVME_TRANSFER);
        assert_int_equal(submit(0, NVME_READ, 1000 + blocks, blocks), 0);
        run_all();
        assert_memory_equal(p, p + NVME_TRANSFER, blocks * 512);
        assert_int_equal(p[blocks * 512 % NVME_TRANSFER], blocks < 128 ? 0 : p[NVME_TRANSFER]);
    }
    assert_int_equal(ended, 256);
    assert_int_equal(failed, 0);
}

static void test_discard_and_flush(void **state) {
    struct nvme_range *r = (void *)(memory + NVME_MEMORY);

    begin();
    memset(model_disk, 0xee, sizeof(model_disk));
    r[0] = (struct nvme_range){ 0, 8, 16 };
    r[1] = (struct nvme_range){ 0, 1, MODEL_BLOCKS - 1 };
    assert_int_equal(submit(0, NVME_DISCARD, 0, 2), 0);
    run_all();
    for (u32 i = 0; i < MODEL_BLOCKS; i++)
        assert_int_equal(model_disk[i * 512],
                         (i >= 16 && i < 24) || i == MODEL_BLOCKS - 1 ? 0 : 0xee);
    assert_int_equal(submit(0, NVME_FLUSH, 0, 0), 0);
    run_all();
    assert_int_equal(model.flushes, 1);
    assert_int_equal(submit(0, NVME_DISCARD, 0, 0), -EINVAL);
    assert_int_equal(submit(0, NVME_DISCARD, 0, NVME_RANGES + 1), -EINVAL);
}

static void test_refused_commands(void **state) {
    begin();
    assert_int_equal(submit(0, NVME_READ, 0, 0), -EINVAL);
    assert_int_equal(submit(0, NVME_READ, 0, 129), -EINVAL);
    assert_int_equal(submit(0, NVME_READ, MODEL_BLOCKS, 1), -EINVAL);
    assert_int_equal(submit(0, NVME_WRITE, MODEL_BLOCKS - 1, 2), -EINVAL);
    assert_int_equal(submit(0, NVME_WRITE, ~0ull, 2), -EINVAL);
    assert_int_equal(submit(0, (enum nvme_op)3, 0, 1), -EINVAL);
    make(0, NVME_READ, 0, 1)->buffer = memory + 512;
    assert_int_equal(nvme_submit(&disk, &command[0], 0), -EINVAL);
    assert_int_equal(submit(0, NVME_WRITE, MODEL_BLOCKS - 1, 1), 0);
    run_all();
    assert_int_equal(ended, 1);
}

/* All that may be under way, many times around the queues, ended in any order; each once. */
static void test_many(void **state) {
    u32 sent = 0;

    begin();
    for (u32 step = 0; step < 400000 && sent < 20000; step++) {
        u32 i = (u32)rand() % BUFFERS;

        if (!command[i].done) {
            int error = submit(i, rand() % 2 ? NVME_READ : NVME_WRITE, (u32)rand() % 4000,
                               1 + (u32)rand() % 96);

            assert_int_equal(error, disk.under_way < disk.depth || !error ? 0 : -EBUSY);
            if (error) command[i].done = NULL;
            sent += !error;
        }
        if (rand() % 16 == 0) nvme_kick(&disk);
        if (rand() % 16 == 0) model_work((u32)rand() % 100);
        if (rand() % 16 == 0) nvme_run(&disk, model_time);
    }
    run_all();
    nvme_run(&disk, model_time);
    assert_int_equal(sent, 20000);
    assert_int_equal(ended, sent);
    assert_int_equal(model.done, sent);
    assert_int_equal(failed, 0);
    assert_int_equal(disk.under_way, 0);
    assert_null(disk.why);
    assert_true(model.kicks < sent / 4); /* told once for many */
}

static u32 again;

static void done_and_again(struct nvme_command *c, int error) {
    ended++;
    failed += error != 0;
    if (again && !nvme_submit(&disk, c, model_time)) again--;
}

static void test_submit_from_done(void **state) {
    begin();
    again = 500;
    make(0, NVME_READ, 0, 1)->done = done_and_again;
    assert_int_equal(nvme_submit(&disk, &command[0], 0), 0);
    run_all();
    assert_int_equal(ended, 501);
    again = 5;
    assert_int_equal(nvme_submit(&disk, &command[0], 0), 0);
    model.dead = true; /* submitting to one that has just died does not help */
    nvme_run(&disk, 1000 * NS_PER_S);
    assert_int_equal(ended, 502);
    assert_int_equal(failed, 1);
}

/* A command that fails says so to its owner, and the others go on. */
static void test_errors(void **state) {
    begin();
    for (u32 i = 0; i < 3; i++) {
        model.fail = i == 1 ? 0x281 : 0; /* unrecovered read error */
        assert_int_equal(submit(i, NVME_READ, i, 1), 0);
        run_all();
        assert_int_equal(failed, i > 0);
    }
    assert_null(disk.why);
    assert_int_equal(disk.errors, 1);
    assert_int_equal(disk.last_error, 0x281);
}

static void broken(const char *why) {
    assert_true(nvme_run(&disk, model_time));
    assert_string_equal(disk.why, why);
    assert_int_equal(disk.under_way, 0);
    assert_int_equal(failed, ended);
    assert_false(model.cc & 1);
    assert_int_equal(submit(9, NVME_FLUSH, 0, 0), -EIO);
    assert_false(nvme_run(&disk, model_time + 1000 * NS_PER_S));
    assert_int_equal(nvme_due(&disk), ~0ull);
}

/* Completions of what it was not given: a number too high, one of none under way, one of before,
 * another queue's. */
static void test_unknown_commands(void **state) {
    static const char *const why = "it ended a command that it was not given";

    for (u32 how = 0; how < 6; how++) {
        struct model_command c;
        u16 id;

        setup(NULL);
        begin();
        submit(0, NVME_READ, 0, 1);
        run_all();
        ended = 0;
        submit(0, NVME_READ, 0, 1);
        submit(1, NVME_READ, 0, 1);
        nvme_kick(&disk);
        model_next(1, &c);
        id = (u16)(c.dw0 >> 16);
        if (how == 0) model_post(1, 1, 0xffff, 0);
        if (how == 1) model_post(1, 1, (u16)((id & 0xff00) | 5), 0);
        if (how == 2) model_post(1, 1, (u16)(id - 0x100), 0);
        if (how == 3) model_post(1, 0, id, 0);
        if (how == 4) model_post(1, 1, (u16)((id & 0xff00) | NVME_QUEUE), 0);
        if (how == 5) {
            model_post(1, 1, id, 0);
            model_post(1, 1, id, 0); /* twice */
            assert_true(nvme_run(&disk, model_time));
            assert_int_equal(failed, 1);
            assert_string_equal(disk.why, why);
            continue;
        }
        broken(why);
        assert_int_equal(ended, 2);
    }
}

/* The ring full of completions with whatever phase: it comes to an end, and touches nothing. */
static void test_phase_games(void **state) {
    begin();
    for (u32 i = 0; i < 100; i++) {
        submit(0, NVME_READ, 0, 1);
        run_all();
    }
    ended = 0;
    submit(0, NVME_READ, 0, 1);
    nvme_kick(&disk);
    for (u32 i = 0; i < NVME_QUEUE; i++) {
        struct model_completion *c = model_at(model.q[1].cq + 16 * i, 16);

        *c = (struct model_completion){ ~0u, ~0u,         0xffff,
                                        1,   (u16)rand(), (u16)(i < 100 ? 0xfffe : 0xffff) };
    }
    broken("it ended a command that it was not given");
}

static void test_time_out(void **state) {
    u64 start;

    begin();
    start = model_time;
    submit(0, NVME_READ, 0, 1);
    nvme_kick(&disk);
    model_time += 20 * NS_PER_S;
    submit(1, NVME_READ, 0, 1);
    for (u64 end = start + NVME_PATIENCE; model_time < end; model_time = nvme_due(&disk)) {
        assert_false(nvme_run(&disk, model_time));
        assert_true(nvme_due(&disk) > model_time && nvme_due(&disk) <= model_time + NS_PER_S);
    }
    broken("it does not answer");
    assert_int_equal(ended, 2);
}

/* A command that ends without an interrupt is found, and does not count as too late. */
static void test_lost_interrupt(void **state) {
    begin();
    submit(0, NVME_READ, 0, 1);
    nvme_kick(&disk);
    model_work(1);
    assert_true(nvme_run(&disk, model_time + 2 * NVME_PATIENCE));
    assert_int_equal(failed, 0);
    assert_null(disk.why);
}

static void test_death(void **state) {
    for (u32 how = 0; how < 3; how++) {
        setup(NULL);
        begin();
        for (u32 i = 0; i < 127; i++) assert_int_equal(submit(i, NVME_READ, i, 1), 0);
        assert_int_equal(submit(127, NVME_READ, 0, 1), -EBUSY);
        nvme_kick(&disk);
        model.dead = how == 0;
        if (how == 1) model.status = 3;
        if (how == 2) model.status = 0;
        model_time += NS_PER_S / 2;
        assert_false(nvme_run(&disk, model_time));
        model_time += NS_PER_S;
        if (how == 0) model.cc = 0; /* it is not there to be switched off */
        broken(how == 0 ? "it is gone" : "it reports a fatal error");
        assert_int_equal(ended, 127);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_set_up, setup),
        cmocka_unit_test_setup(test_small_controller, setup),
        cmocka_unit_test_setup(test_no_controller, setup),
        cmocka_unit_test_setup(test_rubbish_identity, setup),
        cmocka_unit_test_setup(test_transfers, setup),
        cmocka_unit_test_setup(test_discard_and_flush, setup),
        cmocka_unit_test_setup(test_refused_commands, setup),
        cmocka_unit_test_setup(test_many, setup),
        cmocka_unit_test_setup(test_submit_from_done, setup),
        cmocka_unit_test_setup(test_errors, setup),
        cmocka_unit_test_setup(test_unknown_commands, setup),
        cmocka_unit_test_setup(test_phase_games, setup),
        cmocka_unit_test_setup(test_time_out, setup),
        cmocka_unit_test_setup(test_lost_interrupt, setup),
        cmocka_unit_test_setup(test_death, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
