#include "drivers/igb_vfs.h"

#include "drivers/igb_mailbox.h"

#define WINDOW       (100 * NS_PER_MS)
#define BURST        32u /* messages in it */
#define BEHIND_AGE   (300 * NS_PER_S)
#define ECHO_AGE     NS_PER_S
#define LONGEST      1522u /* with its check sequence and a VLAN */

#define STATUS_VFS   14 /* from this bit on, 4 bits: how many are on (8.2.2) */
#define RCTL_VFE     BIT(18)
#define VMOLR_VF     0x89000000u /* no check sequence; broadcasts; frames without a VLAN */
#define VMOLR_GROUPS BIT(25)
#define VLVF_ON      BIT(31)
#define VLVF_POOL    12
#define VLVF_NR      32u
#define VLAN_MASK    0xfffu
#define WVBR         0x3554u /* which queues have sent from a wrong address or VLAN; reading clears it */

/* DTXSWC (8.14.5): frames between pools; nobody sends from another's address, or from a VLAN not his own */
#define DTXSWC_LOOPBACK BIT(31)
#define DTXSWC_SPOOF    ((1u << IGB_VFS) - 1)
#define DTXSWC_SPOOF_V  8

static void set_bit(struct igb_vfs *v, u32 reg, u32 bit, bool on) {
    u32 value = igb_read(v->nic, reg);

    igb_write(v->nic, reg, on ? value | 1u << bit : value & ~(1u << bit));
}

static bool same(const u8 *a, const u8 *b) { return !__builtin_memcmp(a, b, 6); }

/* ---- filters ---- */

/* Address i of the card's 24 is that of `pool`; mac NULL: of nobody. Not valid while it changes. */
static void set_address(struct igb_vfs *v, u32 i, const u8 *mac, u32 pool) {
    u32 reg = i < 16 ? IGB_RA + 8 * i : IGB_RA2 + 8 * (i - 16);

    igb_write(v->nic, reg + 4, 0);
    if (!mac) return;
    igb_write(v->nic, reg, (u32)mac[0] | (u32)mac[1] << 8 | (u32)mac[2] << 16 | (u32)mac[3] << 24);
    igb_write(v->nic, reg + 4, (u32)mac[4] | (u32)mac[5] << 8 | 1u << (IGB_RAH_POOL + pool) | IGB_RAH_AV);
}

static u32 first_behind(void) {
    return 1 + IGB_VFS;
} /* of the card's addresses; the first is the card's own */

void igb_vfs_mac(const struct igb_vfs *v, u32 n, u8 mac[6]) {
    __builtin_memcpy(mac, v->nic->mac, 6);
    mac[0] |= 2; /* locally administered: nobody's card */
    mac[3] ^= (u8)(0x80 | n << 4);
}

/* The entry of this VLAN, or an unused one; never are all used, as each VF has so few. */
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

_Static_assert(IGB_VFS *IGB_VF_VLANS <= VLVF_NR, "VLVF");

/* We are of every VLAN that one of them is of. */
static void vlan_set(struct igb_vfs *v, u32 n, u32 vlan, bool on) {
    u32 reg = IGB_VLVF + 4 * vlan_entry(v, vlan), e = igb_read(v->nic, reg);
    u32 own = 1u << (VLVF_POOL + IGB_OWN), bit = 1u << (VLVF_POOL + n);

    if (!(e & VLVF_ON)) e = vlan | own | (u32)VLVF_ON;
    e = on ? e | bit : e & ~bit;
    if ((e & ~VLAN_MASK) == (own | (u32)VLVF_ON)) e = 0;
    igb_write(v->nic, reg, e);
    set_bit(v, IGB_VFTA + 4 * (vlan / 32), vlan % 32, e);
}

static void set_pool(struct igb_vfs *v, u32 n) {
    igb_write(v->nic, IGB_VMOLR + 4 * n, VMOLR_VF | (v->vf[n].multicast ? (u32)VMOLR_GROUPS : 0));
}

/* Nothing goes to it or comes from it any more, until it begins. */
static void forget(struct igb_vfs *v, u32 n) {
    struct igb_vf *vf = &v->vf[n];

    set_bit(v, IGB_VFRE, n, false);
    set_bit(v, IGB_VFTE, n, false);
    igb_write(v->nic, IGB_VMOLR + 4 * n, 0);
    set_address(v, 1 + n, NULL, n);
    while (vf->vlans) vlan_set(v, n, vf->vlan[--vf->vlans], false);
    vf->ready = vf->multicast = vf->tell = vf->unread = false;
}

/* A reset leaves the addresses of its rings, which are off, and what is in the mailbox (QEMU's does): whoever
 * has it next need not know them. It leaves where the head of a ring is written to: that would be into the
 * next one's memory. And vectors, to which QEMU's only adds. It may be there already, and write; but not to
 * its rings before we answer. */
static void scrub(struct igb_vfs *v, u32 n) {
    static const u8 regs[] = { 0x00, 0x04, 0x08, 0x10, 0x18 }; /* address, length, head, tail */
    u32 mailbox = IGB_PF_MAILBOX + 4 * n;

    for (u32 queue = n; queue < 2 * IGB_POOLS; queue += IGB_POOLS) {
        for (u32 i = 0; i < ARRAY_SIZE(regs); i++) {
            igb_write(v->nic, IGB_RXQ + 0x40 * queue + regs[i], 0);
            igb_write(v->nic, IGB_TXQ + 0x40 * queue + regs[i], 0);
        }
        igb_write(v->nic, IGB_TXQ + 0x40 * queue + IGB_TDWBAL, 0);
        igb_write(v->nic, IGB_TXQ + 0x40 * queue + IGB_TDWBAL + 4, 0);
    }
    igb_write(v->nic, IGB_IVAR + 4 * n, 0);
    igb_write(v->nic, mailbox, IGB_PF_PFU);
    if (igb_read(v->nic, mailbox) & IGB_PF_PFU && !(igb_read(v->nic, IGB_MBVFICR) & 1u << n))
        for (u32 i = 0; i < IGB_MSG_WORDS; i++)
            igb_write(v->nic, IGB_PF_MEMORY + 4 * (IGB_MSG_WORDS * n + i), 0);
    igb_write(v->nic, mailbox, 0);
}

static void begin(struct igb_vfs *v, u32 n, u32 *word) {
    u8 mac[8] = { 0 };

    igb_vfs_mac(v, n, mac);
    forget(v, n);
    v->vf[n].resets++;
    set_pool(v, n);
    set_address(v, 1 + n, mac, n);
    set_bit(v, IGB_VFRE, n, true);
    set_bit(v, IGB_VFTE, n, true);
    v->vf[n].ready = true;
    __builtin_memcpy(word + 1, mac, 8);
}

/* ---- what they ask for ---- */

static bool ask_mac(struct igb_vfs *v, u32 n, const u32 *word) {
    u8 mac[6];

    igb_vfs_mac(v, n, mac);
    return same((const u8 *)(word + 1), mac);
}

static bool ask_vlan(struct igb_vfs *v, u32 n, const u32 *word) {
    struct igb_vf *vf = &v->vf[n];
    u32 vlan = word[1], i = 0;
    bool on = word[0] >> IGB_MSG_INFO & 0xff;

    if (vlan == 0 || vlan >= VLAN_MASK) return false; /* IEEE 802.1Q, 9.6: none, and the reserved one */
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

/* The words are a copy: they do not change any more. True: yes. */
static bool ask(struct igb_vfs *v, u32 n, const u32 *word) {
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

/* Takes the mailbox. It may be in use for as long as its user likes, which harms nobody else: what it had to
 * say is then lost. */
static bool take(struct igb_vfs *v, u32 n) {
    igb_write(v->nic, IGB_PF_MAILBOX + 4 * n, IGB_PF_PFU);
    if (igb_read(v->nic, IGB_PF_MAILBOX + 4 * n) & IGB_PF_PFU) return true;
    v->vf[n].stuck++;
    igb_write(v->nic, IGB_PF_MAILBOX + 4 * n, IGB_PF_RVFU);
    return false;
}

static void answer(struct igb_vfs *v, u32 n) {
    struct igb_vf *vf = &v->vf[n];
    u32 word[3], nr = 1, memory = IGB_PF_MEMORY + 4 * IGB_MSG_WORDS * n, flags;

    if (!take(v, n)) return;
    for (u32 i = 0; i < ARRAY_SIZE(word); i++) word[i] = igb_read(v->nic, memory + 4 * i);
    vf->messages++;
    if ((word[0] & IGB_MSG_TYPE) == IGB_MSG_RESET) {
        begin(v, n, word);
        flags = IGB_MSG_ACK;
        nr = ARRAY_SIZE(word);
    } else if (!vf->ready) {
        vf->refused++;
        flags = IGB_MSG_NACK;
    } else {
        bool yes = ask(v, n, word);

        vf->refused += !yes;
        flags = (yes ? IGB_MSG_ACK : IGB_MSG_NACK) | IGB_MSG_CTS;
    }
    word[0] = (word[0] & IGB_MSG_TYPE) | flags;
    for (u32 i = 0; i < nr; i++) igb_write(v->nic, memory + 4 * i, word[i]);
    igb_write(v->nic, IGB_PF_MAILBOX + 4 * n, IGB_PF_ACK | IGB_PF_STS);
    vf->unread = true;
}

/* May it ask once more in this window? */
static bool may_ask(struct igb_vf *vf, u64 now) {
    if (now - vf->window >= WINDOW) {
        vf->window = now;
        vf->in_window = 0;
    }
    if (vf->in_window == BURST) return false;
    vf->in_window++;
    return true;
}

/* Not over an answer that it may not have read yet, nor over what it writes or asks: then another time. */
static void tell_link(struct igb_vfs *v, u32 n) {
    struct igb_vf *vf = &v->vf[n];

    if (vf->unread || igb_read(v->nic, IGB_PF_MAILBOX + 4 * n) & IGB_PF_VFU || !take(v, n)) return;
    if (igb_read(v->nic, IGB_MBVFICR) & 1u << n) {
        igb_write(v->nic, IGB_PF_MAILBOX + 4 * n, 0);
        return;
    }
    igb_write(v->nic, IGB_PF_MEMORY + 4 * IGB_MSG_WORDS * n, IGB_MSG_CONTROL | IGB_MSG_CTS);
    igb_write(v->nic, IGB_PF_MAILBOX + 4 * n, IGB_PF_STS);
    vf->tell = false;
    vf->unread = true;
}

/* ---- the way in ---- */

void igb_vfs_init(struct igb_vfs *v, struct igb *nic) { *v = (struct igb_vfs){ .nic = nic }; }

/* Sees them for the first time: frames go from pool to pool from here on. */
static bool find(struct igb_vfs *v) {
    u32 nr = MIN(igb_read(v->nic, IGB_STATUS) >> STATUS_VFS & 15, IGB_VFS);

    if (nr && !v->nr) {
        igb_write(v->nic, IGB_DTXSWC, (u32)DTXSWC_LOOPBACK | DTXSWC_SPOOF | DTXSWC_SPOOF << DTXSWC_SPOOF_V);
        igb_write(v->nic, IGB_RCTL, igb_read(v->nic, IGB_RCTL) | (u32)RCTL_VFE);
    }
    for (u32 n = nr; n < v->nr; n++) forget(v, n);
    v->nr = nr;
    return nr;
}

u64 igb_vfs_serve(struct igb_vfs *v, u64 now) {
    u32 reset, asked, mask = ~0u;
    u64 due = ~0ull;

    if (!find(v)) return ~0ull;
    asked = igb_read(v->nic, IGB_MBVFICR); /* first: who is reset in between, and asks, is heard afterwards */
    reset = igb_read(v->nic, IGB_VFLRE);
    igb_write(v->nic, IGB_VFLRE, reset);
    igb_write(v->nic, IGB_MBVFICR,
              asked & ~((1u << v->nr) - 1)); /* who is not there, and what was acknowledged */
    for (u32 n = 0; n < v->nr; n++) {
        struct igb_vf *vf = &v->vf[n];

        if (reset & 1u << n) {
            forget(v, n);
            scrub(v, n);
        }
        if (asked & 0x10000u << n) vf->unread = false;
        if (asked & 1u << n && may_ask(vf, now)) {
            igb_write(v->nic, IGB_MBVFICR,
                      1u << n); /* before the message is read: the next one sets it again */
            answer(v, n);
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

/* ---- who is behind us ---- */

static struct igb_behind *find_behind(struct igb_vfs *v, const u8 *mac) {
    if (v->behind[v->last].seen && same(v->behind[v->last].mac, mac)) return &v->behind[v->last];
    for (u32 i = 0; i < IGB_BEHIND; i++)
        if (v->behind[i].seen && same(v->behind[i].mac, mac)) {
            v->last = i;
            return &v->behind[i];
        }
    return NULL;
}

static bool is_theirs(const struct igb_vfs *v, const u8 *mac) {
    u8 its[6];

    for (u32 n = 0; n < v->nr; n++) {
        igb_vfs_mac(v, n, its);
        if (same(mac, its)) return true;
    }
    return false;
}

bool igb_vfs_sends(struct igb_vfs *v, const u8 *mac, u64 now) {
    struct igb_behind *b = v->nr ? find_behind(v, mac) : NULL, *oldest = v->behind;

    if (b) b->seen = MAX(now, 1ull);
    if (b || !v->nr || mac[0] & 1) return true;
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

bool igb_vfs_echo(struct igb_vfs *v, const u8 *mac, u64 now) {
    struct igb_behind *b = v->nr ? find_behind(v, mac) : NULL;

    if (!b) return false;
    if (now - b->seen <= ECHO_AGE) return true;
    b->seen = 0; /* it has moved */
    set_address(v, first_behind() + (u32)(b - v->behind), NULL, IGB_OWN);
    return false;
}

void igb_vfs_count(struct igb_vfs *v) {
    u32 wrong = v->nr ? igb_read(v->nic, WVBR) : 0;

    for (u32 n = 0; n < v->nr; n++) v->vf[n].spoofed += (wrong >> n | wrong >> (n + IGB_POOLS)) & 1;
}
