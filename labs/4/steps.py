"""The steps of lab 4. `make grade` runs them, one test of tests/check.c each."""
from grader import Lab

lab = Lab(4, "interrupts: a local APIC, its EOI and its timer")

lab.test("raise", 15, "an interrupt is pending, and the vCPU is told once",
         hint="set_irr(): the vCPU is told only if the bit was clear before; highest() looks for "
              "the highest bit of eight registers")
lab.test("classes", 20, "an interrupt waits for a lower priority",
         hint="priority() is PPR, SDM 3A 11.8.3.1; vlapic_pending() compares classes, the upper "
              "four bits, and says -1 if the highest vector has to wait")
lab.test("nested", 20, "interrupts nest, and an EOI ends the highest in service",
         hint="vlapic_accept() moves the vector from IRR to ISR, unless its handler makes no EOI; "
              "end_of_interrupt() clears the highest in ISR, keeps isr_top, and tells the IOAPIC "
              "if the bit in TMR is set")
lab.test("oneshot", 15, "the timer fires once",
         hint="timer_start(): the count, times the divider, from now; timer_take(): stops it and "
              "raises the vector of LVT Timer, unless that is masked; timer_left() is what the "
              "guest can read")
lab.test("periodic", 15, "the timer fires periodically",
         hint="timer_take(): ticks that were missed are lost, the later ones come at the same "
              "times; it is held while the last tick is in IRR; a period is at least "
              "VLAPIC_MIN_PERIOD")
lab.test("deadline", 10, "the timer fires at a deadline",
         hint="timer_start(): in that mode tsc_to_ns() of l->ops says when; a deadline of 0 stops "
              "the timer")

lab.main()
