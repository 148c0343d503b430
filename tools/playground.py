#!/usr/bin/env python3
"""Puts the playground together: one page without anything beside it (docs/playground.md).

  tools/playground.py --sim build/sim --wasm build/sim.wasm -o build/playground/index.html

playground/index.html names its style sheet and its scripts as files of that directory. Their text
takes the place of the names here, because a page that was opened from a file may not load others.
The program goes into the page as base64. Examples are VM files of boot/ and labs/, each with the
smallest number of pCPUs that build/sim accepts for it.
"""
import argparse
import base64
import glob
import json
import os
import re
import subprocess

import sentence

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "playground")
MAX_CPUS = 64


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def fewest_cpus(sim, path):
    """Returns with how few pCPUs the file can be run, or None if the simulation cannot run it."""
    for cpus in range(1, MAX_CPUS + 1):
        done = subprocess.run([sim, "-n", "-p", str(cpus), path], capture_output=True, text=True,
                              check=False)
        if done.returncode == 0:
            return cpus
        if "the machine has" not in done.stderr:
            return None
    return None


def examples(sim):
    """Returns {name: {"file": text, "pcpus": number}}."""
    found = {}
    for path in sorted(glob.glob(os.path.join(ROOT, "labs", "*.cfg"))) + sorted(
            glob.glob(os.path.join(ROOT, "boot", "*.cfg"))):
        cpus = fewest_cpus(sim, path)
        if cpus:
            found[os.path.relpath(path, ROOT)] = {"file": read(path), "pcpus": cpus}
    return found


def choices(sim):
    """Returns what a VM file may ask for, as JSON: policies, presets, parameters, images."""
    return subprocess.run([sim, "-l"], capture_output=True, text=True, check=True).stdout


def in_script(text):
    """Returns a text that may stand inside of a script element, which ends at "</script"."""
    return text.replace("</", "<\\/")


def page(sim, wasm):
    """Returns the text of the whole page."""
    with open(wasm, "rb") as f:
        program = base64.b64encode(f.read()).decode()
    html = read(PAGE, "index.html")
    html = re.sub(r'<link rel="stylesheet" href="([\w.]+)">',
                  lambda m: f"<style>\n{read(PAGE, m[1])}</style>", html)
    html = re.sub(r'<script( [^>]*?)? src="([\w.]+)"></script>',
                  lambda m: f"<script{m[1] or ''}>\n{read(PAGE, m[2])}</script>", html)
    html = html.replace(">EXAMPLES<", f">{in_script(json.dumps(examples(sim)))}<")
    html = html.replace(">CHOICES<", f">{in_script(choices(sim))}<")
    return html.replace(">WASM<", f">{program}<")


def main():
    args = argparse.ArgumentParser(description="puts the playground together")
    args.add_argument("--sim", required=True, help="the program build/sim")
    args.add_argument("--wasm", required=True, help="the same program for WebAssembly")
    args.add_argument("-o", dest="out", required=True, help="the page to write")
    args = args.parse_args()
    text = page(args.sim, args.wasm)
    os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
    with open(args.out, "w", encoding="utf-8") as f:
        f.write(text)
    print(f"{args.out}: open it in a browser")


if __name__ == "__main__":
    sentence.run(main)
