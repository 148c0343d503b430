"""make net-demo with the host's own ping and iperf: measures through a tap device
(tools/hostnet.py) what tools/netdemo.py measures from inside the machine. It sends, one after the
other, echo requests while no other client talks to the server, a TCP stream, and datagrams.

Time is the host's here, so the link is slower than in virtual time. A VM that is off the core for
90 ms still misses 40 frames, and its ring holds 16.
"""
import re

import clients
import compare

PCPUS = 4  # one for all else, one for the driver domain, the shared core, the turbo core
# DATAGRAMS is the payload at the full rate of the link
RATE, DELAY, DATAGRAMS = "5M", "2ms", "4861111"
HOW = "5 Mb/s, 2 ms each way; the host's ping and iperf"
ECHO = ("-c", "200", "-i", "0.02", "-W", "2")
# The send buffer is small: at the end, iperf waits no longer than 4 s until what is in it was
# taken.
TCP = ("-t", "4", "-w", "128K")
UDP = ("-t", "4", "-b", DATAGRAMS)
BOOT_S = 60

MACHINE = {
    "vm iodom": {"pci": "00:03.0", "unsafe_dma": "yes", "cmdline": "report_s=1"},
    "vm server": {"net": f"iodom rate={RATE} delay={DELAY}"},
}


def vm_file(text, address):
    """Returns the VM file of a set-up without the VMs that make traffic inside the machine."""
    text = re.sub(r"(?ms)^\[vm (source|probe)\].*?(?=^\[|\Z)", "", text)
    return compare.lay_over(text, MACHINE).replace("ip=10.0.0.2/24", f"ip={address}/24")


def measure(address):
    """Returns what ping and iperf say about the server at this address."""
    clients.until_answered(address, BOOT_S)
    echo = clients.ping(address, *ECHO)
    tcp = clients.iperf_tcp(address, *TCP)
    udp = clients.iperf_udp(address, *UDP)
    times = echo["rtt_ms"]
    if not times:
        raise clients.Failed(f"{address} has answered no echo request")
    return {"tcp_mbps": round(tcp["mbps"], 2), "udp_mbps": round(udp["mbps"], 2),
            "rtt_ms": {"p50": clients.quantile(times, 0.5), "p99": clients.quantile(times, 0.99),
                       "max": times[-1],
                       "mean": round(sum(times) / len(times), 2)},
            "udp_lost": udp["lost"], "udp_sent": udp["sent"], "echo_requests": echo["requests"],
            "echo_answers": echo["answers"]}
