"""The steps of lab 12. `make grade` runs them, one test of tests/check.c each."""
from grader import Lab

lab = Lab(12, "confine a device: tables of an IOMMU, and a wild DMA")

lab.test("attach", 20, "a device has a domain",
         hint="context_of(): the root table has an entry for each bus, and points to a table with "
              "an entry for each function of it; iommu_attach() writes the domain into that")
lab.test("map", 20, "a device reaches what was mapped for its domain",
         hint="second_level(): four levels, 9 bits of the address each; domain_map() writes an "
              "entry of level 1 for each page")
lab.test("rights", 15, "rights hold, and what is mapped again is new",
         hint="domain_map(): the tables above have all rights, and the entry of level 1 those of "
              "the page; the unit has cached an entry that was in use (hw_flush_domain)")
lab.test("unmap", 15, "what was taken away cannot be reached",
         hint="domain_unmap(): makes no tables, and flushes what the unit has cached")
lab.test("detach", 15, "a device whose VM has ended reaches nothing",
         hint="iommu_detach(): the context entry is no longer present; the unit has cached that "
              "entry (hw_flush_context), and pages of the domain")
lab.test("wild", 10, "a wild DMA is stopped, and reported in a sentence",
         hint="iommu_describe(): the source is bus << 8 | device << 3 | function, in hexadecimal")

lab.main()
