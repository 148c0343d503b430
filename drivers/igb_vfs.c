/* What the physical function of an 82576 card does for the card's virtual functions. Each virtual
 * function belongs to a VM, and asks by its *mailbox*, 16 words of memory on the card, for an
 * address, VLANs and multicasts. The VM may write anything there, so each request is copied,
 * checked and limited. "We" and "our" mean the physical function, whose pool of queues is IGB_OWN;
 * addresses "behind us" are those of VMs on the driver domain's bridge. igb_vfs.h has the
 * contracts. */
#include "drivers/igb_vfs.h"

#include "drivers/igb_mailbox.h"

#define WINDOW (100 * NS_PER_MS)
/* How many messages of a virtual function are answered within WINDOW. */
#define BURST 32u
/* An address behind us is forgotten when no frame has come from it for so long. */
#define BEHIND_AGE (300 * NS_PER_S)
/* Our own frame, which the card may show us, comes back within this time. */
#define ECHO_AGE     NS_PER_S
#define LONGEST      1522u /* bytes of a frame with its check sequence and a VLAN tag */

#define STATUS_VFS   14 /* from this bit on, 4 bits: how many are on (8.2.2) */
#define RCTL_VFE     BIT(18)
#define VMOLR_VF     0x89000000u /* no check sequence; broadcasts; frames without a VLAN */
#define VMOLR_GROUPS BIT(25)
#define VLVF_ON      BIT(31)
#define VLVF_POOL    12
#define VLVF_NR      32u
#define VLAN_MASK    0xfffu
/* This register tells which queues have sent from a wrong address or VLAN. Reading clears it. */
#define WVBR 0x3554u

/* DTXSWC (8.14.5): frames go from pool to pool; the card drops frames that a virtual function sends
 * from an address or a VLAN that is not its own. */
#define DTXSWC_LOOPBACK BIT(31)
#define DTXSWC_SPOOF    ((1u << IGB_VFS) - 1)
#define DTXSWC_SPOOF_V  8

/* Sets or clears one bit of a register that has a bit for each pool, and leaves the others as they
 * are. */
static void set_bit(struct igb_vfs *v, u32 reg, u32 bit, bool on) {
    u32 value = igb_read(v->nic, reg);

    if (on)
        value |= 1u << bit;
    else
        value &= ~(1u << bit);
    igb_write(v->nic, reg, value);
}

/* Returns whether two Ethernet addresses are the same. */
static bool same_mac(const u8 *a, const u8 *b) { return !__builtin_memcmp(a, b, 6); }

/* ---- filters ---- */

/* Makes number i of the card's 24 address filters that of `pool`. If `mac` is NULL, clears it. The
 * filter is switched off while it changes, so that no frame matches half of the old address and
 * half of the new one. */
static void set_address(struct igb_vfs *v, u32 i, const u8 *mac, u32 pool) {
    u32 reg = IGB_RA + 8 * i;

    if (i >= 16) reg = IGB_RA2 + 8 * (i - 16);
    igb_write(v->nic, reg + 4, 0);
    if (!mac) return;
    igb_write(v->nic, reg, (u32)mac[0] | (u32)mac[1] << 8 | (u32)mac[2] << 16 | (u32)mac[3] << 24);
    igb_write(v->nic, reg + 4,
              (u32)mac[4] | (u32)mac[5] << 8 | 1u << (IGB_RAH_POOL + pool) | IGB_RAH_AV);
}

/* Returns the first one of the card's address filters that is for addresses behind us. Number 0 is
 * the card's own address, and after it comes one for each virtual function. */
static u32 first_behind(void) { return 1 + IGB_VFS; }

void igb_vfs_mac(const struct igb_vfs *v, u32 n, u8 mac[6]) {
    __builtin_memcpy(mac, v->nic->mac, 6);
    mac[0] |= 2; /* locally administered: no manufacturer has given it to a card */
    mac[3] ^= (u8)(0x80 | n << 4);
}

/* Finds the entry for a VLAN in the card's table. The card has one table of VLANs for all its
 * functions (VLVF); an entry names a VLAN and the pools that get its frames. Returns the index of
 * this VLAN's entry, or of an entry that is unused. There always is one, because each virtual
 * function has at most IGB_VF_VLANS. */
static u32 vlan_entry(struct igb_vfs *v, u32 vlan) {
    u32 unused = VLVF_NR - 1;

    for (u32 i = 0; i < VLVF_NR; i++) {
        u32 e = igb_read(v->nic, IGB_VLVF + 4 * i);

        if (!(e & VLVF_ON))
            unused = i;
        else if ((e & VLAN_MASK) == vlan)
            return i;
    }
    return unused;
}

_Static_assert(IGB_VFS *IGB_VF_VLANS <= VLVF_NR,
               "the table has room for the VLANs of all virtual functions");

/* Lets virtual function n into the VLAN, or takes it out. Our own pool is in every VLAN in which a
 * virtual function is. When the last one has left the VLAN, the entry is cleared. */
static void vlan_set(struct igb_vfs *v, u32 n, u32 vlan, bool on) {
    u32 reg = IGB_VLVF + 4 * vlan_entry(v, vlan), e = igb_read(v->nic, reg);
    u32 own = 1u << (VLVF_POOL + IGB_OWN), bit = 1u << (VLVF_POOL + n);

    if (!(e & VLVF_ON)) e = vlan | own | (u32)VLVF_ON;
    if (on)
        e |= bit;
    else
        e &= ~bit;
    if ((e & ~VLAN_MASK) == (own | (u32)VLVF_ON)) e = 0;
    igb_write(v->nic, reg, e);
    set_bit(v, IGB_VFTA + 4 * (vlan / 32), vlan % 32, e);
}

/* Says which frames the pool of virtual function n takes. */
static void set_pool(struct igb_vfs *v, u32 n) {
    u32 takes = VMOLR_VF;

    if (v->vf[n].multicast) takes |= (u32)VMOLR_GROUPS;
    igb_write(v->nic, IGB_VMOLR + 4 * n, takes);
}

/* Cuts virtual function n off: no frames go to it or come from it, until it says that it begins. */
static void vf_forget(struct igb_vfs *v, u32 n) {
    struct igb_vf *vf = &v->vf[n];

    set_bit(v, IGB_VFRE, n, false);
    set_bit(v, IGB_VFTE, n, false);
    igb_write(v->nic, IGB_VMOLR + 4 * n, 0);
    set_address(v, 1 + n, NULL, n);
    while (vf->vlans) vlan_set(v, n, vf->vlan[--vf->vlans], false);
    vf->ready = vf->multicast = vf->tell = vf->unread = false;
}

/* Clears what a reset of virtual function n leaves behind, so that its next owner neither sees it
 * nor suffers from it:
 *   the addresses of its rings (which are off), and the words in the mailbox, as QEMU leaves them;
 *   the address where the device writes the head of a ring: that would be in the next owner's
 *   memory;
 *   its vectors: QEMU adds new ones to those that are there, and a reset does not remove any.
 * The next owner may be at work already and write to the mailbox, whose words are then not cleared;
 * but it sets up no rings before we answer. */
static void vf_scrub(struct igb_vfs *v, u32 n) {
    static const u8 regs[] = { 0x00, 0x04, 0x08, 0x10, 0x18 }; /* address, length, head, tail */
    u32 mailbox = IGB_PF_MAILBOX + 4 * n;

    for (u32 queue = n; queue < 2 * IGB_POOLS; queue += IGB_POOLS) {
        for (u32 i = 0; i < ARRAY_SIZE(regs); i++) {
            igb_write(v->nic, IGB_RXQ + IGB_QUEUE * queue + regs[i], 0);
            igb_write(v->nic, IGB_TXQ + IGB_QUEUE * queue + regs[i], 0);
        }
        igb_write(v->nic, IGB_TXQ + IGB_QUEUE * queue + IGB_TDWBAL, 0);
        igb_write(v->nic, IGB_TXQ + IGB_QUEUE * queue + IGB_TDWBAL + 4, 0);
    }
    igb_write(v->nic, IGB_IVAR + 4 * n, 0);
    igb_write(v->nic, mailbox, IGB_PF_PFU);
    if (igb_read(v->nic, mailbox) & IGB_PF_PFU && !(igb_read(v->nic, IGB_MBVFICR) & 1u << n))
        for (u32 i = 0; i < IGB_MSG_WORDS; i++)
            igb_write(v->nic, IGB_PF_MEMORY + 4 * (IGB_MSG_WORDS * n + i), 0);
    igb_write(v->nic, mailbox, 0);
}

/* Sets up the filters of virtual function n, which begins to work, and writes its address into the
 * answer `word`. */
static void vf_begin(struct igb_vfs *v, u32 n, u32 *word) {
    u8 mac[8] = { 0 };

    igb_vfs_mac(v, n, mac);
    vf_forget(v, n);
    v->vf[n].resets++;
    set_pool(v, n);
    set_address(v, 1 + n, mac, n);
    set_bit(v, IGB_VFRE, n, true);
    set_bit(v, IGB_VFTE, n, true);
    v->vf[n].ready = true;
    __builtin_memcpy(word + 1, mac, 8);
}

/* ---- what virtual functions ask for: true if they get it ---- */

/* Returns whether virtual function n may use the address in the message. It gets only the address
 * that was given to it: with another one it could receive frames for another VM. */
static bool ask_mac(struct igb_vfs *v, u32 n, const u32 *word) {
    u8 mac[6];

    igb_vfs_mac(v, n, mac);
    return same_mac((const u8 *)(word + 1), mac);
}

/* Lets virtual function n join the VLAN in the message, or leave it. Returns whether it may. It is
 * no error to join a VLAN twice, or to leave one that was not joined, so a driver may repeat its
 * message. */
static bool ask_vlan(struct igb_vfs *v, u32 n, const u32 *word) {
    struct igb_vf *vf = &v->vf[n];
    u32 vlan = word[1], i = 0;
    bool on = word[0] >> IGB_MSG_INFO & 0xff;

    if (vlan == 0 || vlan >= VLAN_MASK)
        return false; /* IEEE 802.1Q, 9.6: "no VLAN", and the reserved number */
    while (i < vf->vlans && vf->vlan[i] != vlan) i++;
    if (on == (i < vf->vlans)) return true;
    if (on && vf->vlans == IGB_VF_VLANS) return false;
    if (on)
        vf->vlan[vf->vlans++] = (u16)vlan;
    else
        vf->vlan[i] = vf->vlan[--vf->vlans];
    vlan_set(v, n, vlan, on);
    return true;
}

/* Does what the message asks for. `word` is a copy, so that the virtual function cannot change the
 * words after they were checked. */
static bool pf_ask(struct igb_vfs *v, u32 n, const u32 *word) {
    switch (word[0] & IGB_MSG_TYPE) {
    case IGB_MSG_MAC: return !(word[0] >> IGB_MSG_INFO & 0xff) && ask_mac(v, n, word);
    case IGB_MSG_VLAN: return ask_vlan(v, n, word);
    case IGB_MSG_LENGTH: return word[1] <= LONGEST;
    case IGB_MSG_MULTICAST:
        v->vf[n].multicast = word[0] >> IGB_MSG_INFO & 0xff;
        set_pool(v, n);
        return true;
    default: return false;
    }
}

/* Takes the mailbox of virtual function n. Returns false if the virtual function holds the mailbox.
 * We do not wait for it, because it might hold the mailbox for ever. We take the mailbox away
 * instead, and its message is lost. */
static bool pf_take_mailbox(struct igb_vfs *v, u32 n) {
    igb_write(v->nic, IGB_PF_MAILBOX + 4 * n, IGB_PF_PFU);
    if (igb_read(v->nic, IGB_PF_MAILBOX + 4 * n) & IGB_PF_PFU) return true;
    v->vf[n].stuck++;
    igb_write(v->nic, IGB_PF_MAILBOX + 4 * n, IGB_PF_RVFU);
    return false;
}

/* Reads the message in the mailbox of virtual function n, does what it asks for, and writes the
 * answer. Until a virtual function has said that it begins, all other messages are refused, because
 * it has no filters yet. */
static void pf_answer(struct igb_vfs *v, u32 n) {
    struct igb_vf *vf = &v->vf[n];
    u32 word[3], nr = 1, memory = IGB_PF_MEMORY + 4 * IGB_MSG_WORDS * n, flags = IGB_MSG_NACK;

    if (!pf_take_mailbox(v, n)) return;
    for (u32 i = 0; i < ARRAY_SIZE(word); i++) word[i] = igb_read(v->nic, memory + 4 * i);
    vf->messages++;
    if ((word[0] & IGB_MSG_TYPE) == IGB_MSG_RESET) {
        vf_begin(v, n, word);
        flags = IGB_MSG_ACK;
        nr = ARRAY_SIZE(word);
    } else if (!vf->ready) {
        vf->refused++;
    } else {
        if (pf_ask(v, n, word))
            flags = IGB_MSG_ACK;
        else
            vf->refused++;
        flags |= IGB_MSG_CTS;
    }
    word[0] = (word[0] & IGB_MSG_TYPE) | flags;
    for (u32 i = 0; i < nr; i++) igb_write(v->nic, memory + 4 * i, word[i]);
    igb_write(v->nic, IGB_PF_MAILBOX + 4 * n, IGB_PF_ACK | IGB_PF_STS);
    vf->unread = true;
}

/* Counts a message of the virtual function. Returns whether it may ask once more in this window of
 * time. */
static bool may_ask(struct igb_vf *vf, u64 now) {
    if (now - vf->window >= WINDOW) {
        vf->window = now;
        vf->in_window = 0;
    }
    if (vf->in_window == BURST) return false;
    vf->in_window++;
    return true;
}

/* Tells virtual function n that the link has changed. The mailbox may hold an answer that was
 * perhaps not read yet, or a message of the virtual function. These must not be overwritten, so the
 * virtual function is told another time. */
static void tell_link(struct igb_vfs *v, u32 n) {
    struct igb_vf *vf = &v->vf[n];

    if (vf->unread || igb_read(v->nic, IGB_PF_MAILBOX + 4 * n) & IGB_PF_VFU ||
        !pf_take_mailbox(v, n))
        return;
    if (igb_read(v->nic, IGB_MBVFICR) & 1u << n) {
        igb_write(v->nic, IGB_PF_MAILBOX + 4 * n, 0);
        return;
    }
    igb_write(v->nic, IGB_PF_MEMORY + 4 * IGB_MSG_WORDS * n, IGB_MSG_CONTROL | IGB_MSG_CTS);
    igb_write(v->nic, IGB_PF_MAILBOX + 4 * n, IGB_PF_STS);
    vf->tell = false;
    vf->unread = true;
}

/* ---- from outside ---- */

void igb_vfs_init(struct igb_vfs *v, struct igb *nic) { *v = (struct igb_vfs){ .nic = nic }; }

/* Looks how many virtual functions there are. When there are some for the first time, lets frames
 * go from pool to pool. Returns whether there are any. */
static bool find_vfs(struct igb_vfs *v) {
    u32 nr = MIN(igb_read(v->nic, IGB_STATUS) >> STATUS_VFS & 15, IGB_VFS);

    if (nr && !v->nr) {
        igb_write(v->nic, IGB_DTXSWC,
                  (u32)DTXSWC_LOOPBACK | DTXSWC_SPOOF | DTXSWC_SPOOF << DTXSWC_SPOOF_V);
        igb_write(v->nic, IGB_RCTL, igb_read(v->nic, IGB_RCTL) | (u32)RCTL_VFE);
    }
    for (u32 n = nr; n < v->nr; n++) vf_forget(v, n);
    v->nr = nr;
    return nr;
}

/* Answers the messages of the virtual functions. Returns when it wants to be called again (ns); ~0
 * means after the next interrupt. A virtual function may ask BURST times in a time of WINDOW. If it
 * asks more often, its bit stays set, and its interrupt is masked until that time is over.
 * Otherwise it could keep the driver domain busy for ever. */
u64 igb_vfs_serve(struct igb_vfs *v, u64 now) {
    u32 reset, asked, mask = ~0u;
    u64 due = ~0ull;

    if (!find_vfs(v)) return ~0ull;
    /* MBVFICR is read first. Otherwise, if a virtual function is reset and asks between the two
     * reads, it would be answered before its reset is seen, and cut off after that. */
    asked = igb_read(v->nic, IGB_MBVFICR);
    reset = igb_read(v->nic, IGB_VFLRE);
    igb_write(v->nic, IGB_VFLRE, reset);
    /* Clears acknowledgements, and requests of functions that are not there. */
    igb_write(v->nic, IGB_MBVFICR, asked & ~((1u << v->nr) - 1));
    for (u32 n = 0; n < v->nr; n++) {
        struct igb_vf *vf = &v->vf[n];

        if (reset & 1u << n) {
            vf_forget(v, n);
            vf_scrub(v, n);
        }
        if (asked & 0x10000u << n) vf->unread = false;
        if (asked & 1u << n && may_ask(vf, now)) {
            /* The bit is cleared before the message is read, so that the next message sets it
             * again. */
            igb_write(v->nic, IGB_MBVFICR, 1u << n);
            pf_answer(v, n);
        } else if (asked & 1u << n) {
            vf->held++;
            mask &= ~(1u << n);
            due = MIN(due, vf->window + WINDOW);
        }
        if (vf->tell && vf->ready) tell_link(v, n);
    }
    igb_write(v->nic, IGB_MBVFIMR, mask);
    return due;
}

void igb_vfs_link(struct igb_vfs *v) {
    for (u32 n = 0; n < v->nr; n++) v->vf[n].tell = v->vf[n].ready;
}

/* ---- addresses behind us, on the bridge ---- */

/* Returns the entry of an address behind us, or NULL. The entry that was found last is tried first,
 * because most frames come in runs from one address. */
static struct igb_behind *find_behind(struct igb_vfs *v, const u8 *mac) {
    if (v->behind[v->last].seen && same_mac(v->behind[v->last].mac, mac))
        return &v->behind[v->last];
    for (u32 i = 0; i < IGB_BEHIND; i++)
        if (v->behind[i].seen && same_mac(v->behind[i].mac, mac)) {
            v->last = i;
            return &v->behind[i];
        }
    return NULL;
}

/* Returns whether `mac` is the address of one of our virtual functions. */
static bool is_theirs(const struct igb_vfs *v, const u8 *mac) {
    u8 its[6];

    for (u32 n = 0; n < v->nr; n++) {
        igb_vfs_mac(v, n, its);
        if (same_mac(mac, its)) return true;
    }
    return false;
}

/* Notes that a frame from the address `mac` is about to be sent through the physical function.
 * Returns false if the frame must not be sent, because a virtual function has that address. An
 * address that is new gets one of the card's filters, so that the card brings frames to that
 * address to our pool. If all filters are in use, the address from which no frame has come for the
 * longest time loses its filter. */
bool igb_vfs_sends(struct igb_vfs *v, const u8 *mac, u64 now) {
    struct igb_behind *b, *oldest = v->behind;

    if (!v->nr) return true;
    b = find_behind(v, mac);
    if (b) b->seen = MAX(now, 1ull);
    if (b || mac[0] & 1) return true;
    if (is_theirs(v, mac)) return false;
    for (b = v->behind; b < v->behind + IGB_BEHIND; b++) {
        if (b->seen && now - b->seen > BEHIND_AGE) {
            b->seen = 0;
            set_address(v, first_behind() + (u32)(b - v->behind), NULL, IGB_OWN);
        }
        if (b->seen < oldest->seen) oldest = b;
    }
    oldest->seen = MAX(now, 1ull);
    __builtin_memcpy(oldest->mac, mac, 6);
    v->last = (u32)(oldest - v->behind);
    set_address(v, first_behind() + v->last, mac, IGB_OWN);
    return true;
}

/* Returns whether a received frame with the sender `mac` is one that we have sent ourselves. A
 * frame from an address behind us is our own one only if we have sent from that address a short
 * time ago. */
bool igb_vfs_echo(struct igb_vfs *v, const u8 *mac, u64 now) {
    struct igb_behind *b;

    if (!v->nr) return false;
    b = find_behind(v, mac);
    if (!b) return false;
    if (now - b->seen <= ECHO_AGE) return true;
    /* It is not behind us any more: its owner has moved to the other side of the cable. */
    b->seen = 0;
    set_address(v, first_behind() + (u32)(b - v->behind), NULL, IGB_OWN);
    return false;
}

/* Counts, in `spoofed`, each virtual function that the card has caught since the last call. The
 * card has one bit for each queue that has sent from a wrong address or VLAN, and a function has
 * two queues. */
void igb_vfs_count(struct igb_vfs *v) {
    u32 wrong;

    if (!v->nr) return;
    wrong = igb_read(v->nic, WVBR);
    for (u32 n = 0; n < v->nr; n++) v->vf[n].spoofed += (wrong >> n | wrong >> (n + IGB_POOLS)) & 1;
}
