"""Steps of lab 11 that students do not have. tools/grade-all.py adds them."""


def add(lab):
    lab.test("at_rest", 10, "anything in any order",
             hint="when all is quiet the manager knows how many pages are dirty, by a factor of "
                  "two, and flush_now is 0",
             program="hidden_check")
    lab.test("dies_in_a_sync", 5, "the manager ends while the guest syncs",
             hint="what the guest has written for a manager that is gone is removed",
             program="hidden_check")
