"""Steps of lab 9 that students do not have. tools/grade-all.py adds them."""


def add(lab):
    lab.test("random_load", 10, "thousands of requests in any order",
             hint="both sides sleep until the other one wakes them", program="hidden_check")
    lab.test("no_memory", 5, "no memory for a ring",
             hint="virtio_queue(): the device is told of a ring that is complete, and of no other",
             program="hidden_check")
