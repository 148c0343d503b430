"""Shows a person who waits what a command does now, how much of it is done, and how long the rest
may take.

On a terminal this is one line of stderr, which is written again each second and erased at the end.
Elsewhere, for example in a log, only finished steps are reported, each on a line of its own.
"""
import concurrent.futures
import sys
import threading
import time

PATIENCE = 2  # in seconds; a shorter wait needs no message


def duration(seconds):
    """Returns a duration in the words of a person."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class Line:
    """with Line("Bochs boots"): a terminal shows the text and the seconds so far. The text may be a
    function that returns it.

    A Line within another Line, in whatever thread, shows nothing: there is only one line, and the
    outer one has it.
    """

    taken = threading.Lock()

    def __init__(self, text, stream=None):
        self.text = text if callable(text) else lambda: text
        self.stream = stream or sys.stderr
        self.over = threading.Event()
        self.thread = None

    def __enter__(self):
        if self.stream.isatty() and Line.taken.acquire(blocking=False):
            self.begin = time.monotonic()
            self.thread = threading.Thread(target=self.show, daemon=True)
            self.thread.start()
        return self

    def show(self):
        while not self.over.wait(1):
            seconds = time.monotonic() - self.begin
            if seconds >= PATIENCE:
                self.stream.write(f"\r\033[K{self.text()}, {duration(seconds)}"[:82])
                self.stream.flush()

    def __exit__(self, *_):
        if self.thread:
            self.over.set()
            self.thread.join()
            self.stream.write("\r\033[K")
            self.stream.flush()
            Line.taken.release()


def run_all(label, function, jobs, workers, name=str):
    """Returns [function(job) for job in jobs]. Runs `workers` of them at a time, while stderr tells
    how many are done and how much time is left.

    name(job) is the text that reports a finished job. The first exception of a function is raised;
    jobs that have not begun by then are dropped.
    """
    jobs, begin, done = list(jobs), time.monotonic(), 0

    def state():
        left = (time.monotonic() - begin) / done * (len(jobs) - done) if done else None
        return f"{label}: {done} of {len(jobs)}" + (f", about {duration(left)} left" if left
                                                    else "")

    with concurrent.futures.ThreadPoolExecutor(workers) as pool, Line(state) as line:
        futures = {pool.submit(function, job): job for job in jobs}
        try:
            for future in concurrent.futures.as_completed(futures):
                future.result()
                done += 1
                if not line.thread:
                    print(f"{state()}: {name(futures[future])}", file=sys.stderr, flush=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]
