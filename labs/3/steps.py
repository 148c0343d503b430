"""The steps of lab 3. `make grade` runs them, one test of tests/check.c each."""
from grader import Lab

lab = Lab(3, "the guest's page walk, and second-level tables")

lab.test("map", 15, "npt_map maps pages of 4 KiB",
         hint="entry_for() goes down from t->root, 9 bits of the address a level, and makes the "
              "tables that are missing; set_range() writes a leaf for each page")
lab.test("large", 10, "npt_map takes 2 MiB pages where it can",
         hint="set_range(): a large page needs both addresses aligned to 2 MiB, and 2 MiB that "
              "are left; its leaf has the bit LARGE")
lab.test("split", 15, "a large page is split when a part of it changes",
         hint="make_table(): the 512 new entries map what the large page did, without the bit "
              "LARGE; entry_for() lowers *level to 1 where a table is in the way")
lab.test("generation", 10, "processors are told when a mapping was replaced",
         hint="set_range(): tlbgen_bump() once, after the entries, if one of them was in use; and "
              "without `make` entry_for() makes no table")
lab.test("find", 10, "npt_find finds what is mapped",
         hint="npt_find(): an offset of 12 bits in a small page, and of 21 bits in a large one")
lab.test("walk", 15, "the guest's tables are walked, with pages of all sizes",
         hint="walk_descend(): entry_at() finds an entry, maps_page() tells whether it is the "
              "leaf; w->gpa is what the leaf says and the offset in the page; note entries in "
              "w->at and w->value, and w->reserved")
lab.test("rights", 10, "rights, and the error code of the fault",
         hint="walk_allowed(): all entries must have W and U (w->all), and none may have NX "
              "(w->any); CR0.WP, SMEP and SMAP are about the supervisor. fault_code(): SDM 3A 4.7")
lab.test("accessed", 10, "accessed and dirty",
         hint="set_accessed(): A in all entries, D in the leaf if it is a write, by "
              "compare-and-exchange, and nothing after a fault")

lab.main()
