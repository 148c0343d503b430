"""The steps of lab 9. `make grade` runs them, one test of tests/check.c each."""
from grader import Lab

lab = Lab(9, "a virtio front end")

lab.test("handshake", 15, "driver and device agree on features",
         hint="virtio_begin(): the order of virtio 1.2, 3.1.1, with Status read back at the end; "
              "add_status() keeps the bits that are set. virtio_config(): read all again if the "
              "generation has changed")
lab.test("chains", 15, "a request becomes a chain of descriptors",
         hint="vring_front_add(): n descriptors of the free list, the last one without NEXT, and "
              "WRITE from buffer nr_out on; the head goes into the available ring. With "
              "r->indirect the chain is in a table: add_indirect()")
lab.test("publish", 15, "the device sees chains, and is notified if it wants to be",
         hint="vring_front_publish(): first the index (RELEASE) and a fence, and only then look at "
              "what the device wants; vring_need_event() compares from the old index to the new "
              "one")
lab.test("taken", 15, "chains come back, in any order",
         hint="vring_front_take(): the used ring names the head of a chain; free_chain() puts all "
              "descriptors of it back. Indexes count on to 65,535, and only the place in the ring "
              "is modulo its size")
lab.test("liar", 10, "a device that lies breaks the ring, and nothing else",
         hint="vring_front_take(): what the device writes may be anything: look at the number of "
              "the descriptor, at its token, and at how many chains can be done at most")
lab.test("listen", 10, "no interrupt is lost",
         hint="vring_front_listen(): first ask for the interrupt, then a fence, then look whether "
              "the chains are done; the event index names the last chain of them")
lab.test("requests", 15, "a disk reads and writes",
         hint="virtio_blk_submit(): header, data, status, in that order; of a read the device "
              "writes all but the header, of a write only the status. virtio_queue(): tell the "
              "device of the ring when it is complete")


lab.main()
