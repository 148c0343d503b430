/* memory: 16 */
/* All RAM that the image does not fill is zero at the start. The guest fills it before it ends,
 * so that the next VM shows whether it was scrubbed. */
#include <guest/mem.h>
#include <guest/test.h>

int main(void) {
    unsigned n;
    const struct mem_range *r = mem_ranges(&n);
    u64 looked = 0, bad = 0, first = 0, limit = mem_image_end() + 64 * PAGE_SIZE;
    u64 *p;

    test_begin();
    for (unsigned i = 0; i < n; i++)
        for (u64 a = r[i].start; r[i].type == 1 && a < r[i].end; a += 8) {
            /* Stacks and tables of the library come right behind the image. */
            if (a >= 0x100000 && a < limit) continue;
            looked++;
            if (*(volatile u64 *)a) {
                first = bad++ ? first : a;
            }
        }
    CHECK(!bad || !on_takt(), "%lu of %lu words are not zero, the first at %lx: %lx", bad, looked,
          first, *(u64 *)first);
    CHECK(looked > 1000, "only %lu words looked at", looked);
    while ((p = page_alloc(1)))
        for (unsigned i = 0; i < 512; i++) p[i] = 0x5eed5eed5eed5eed;
    return test_end("RAM was clean");
}
