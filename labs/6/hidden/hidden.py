"""Steps of lab 6 that students do not have. tools/grade-all.py adds them."""
import re

TIMES = ("tick_us=1000 lead_us=100 nap_us=150", "tick_us=5000 lead_us=100 nap_us=200")


def add(lab):
    @lab.step(10, "thieves with other times", hint="a thief pays for all that it ran")
    def thieves(t):
        for times in TIMES:
            with open("thief.cfg", encoding="utf-8") as f:
                text = re.sub(r"tick_us=.*", times, f.read())
            with open("build/thief-hidden.cfg", "w", encoding="utf-8") as f:
                f.write(text)
            result = t.sim("build/thief-hidden.cfg", warm_up="3s", time="20s")
            t.at_most(f"CPU time of VM thief with {times}, in %", result.cpu("thief"), 26)
