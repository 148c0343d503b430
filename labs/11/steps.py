"""The steps of lab 11. `make grade` runs them, one test of tests/check.c each."""
from grader import Lab

lab = Lab(11, "a store watch that tunes a guest: flush on idle")

lab.test("choose", 15, "the manager asks the VM with most dirty pages",
         hint="flush_choose(): nobody while the device is busy, or while one that was asked still "
              "has time to answer; flush.h has the rule")
lab.test("watch", 15, "the guest hears of the manager's keys",
         hint="watch_all(): a watch for the manager and one for each of `keys`; "
              "collab_on_change() runs in an interrupt handler, so it notes k->bit and wakes the "
              "thread; collab_work() does the rest")
lab.test("publish", 20, "the manager hears about how many pages are dirty",
         hint="publish_dirty(): nr, then has_dirty_pages at an edge; only when the number has "
              "doubled or halved. wait_for_news(): pagecache_tell_at() wakes the thread at twice "
              "the number, and LOOK_NS later it looks by itself")
lab.test("flush", 20, "the guest flushes when it is asked to",
         hint="collab_flush(): sync, then clear flush_now, then nr in any case, because the "
              "manager looks at flush_now when it hears of nr")
lab.test("quiet", 10, "nothing to do is nothing done",
         hint="wait_for_news(): a deadline only while pages are dirty, and pagecache_tell_at() "
              "only if there is a manager")
lab.test("idle", 5, "the guest flushes by itself while the device is idle",
         hint="flush_by_itself() when device_idle has changed, and at each look")
lab.test("another", 10, "another manager comes",
         hint="look_for_manager(): what was made for the old manager goes, with the node above it "
              "(DISKS); the new one is told everything anew")

lab.main()
