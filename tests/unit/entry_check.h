/* The checks that a CPU makes when a guest is entered, and those of KVM for a hypervisor in its
 * guest.
 *
 * They run in two places: on the host, over the model of a CPU (fake_hw.c), and in an image that
 * is made for that (image_check.c), where they look at each VMCS and VMCB that a real boot
 * enters. So they read what they look at by the instructions that the hypervisor itself has:
 * vmread(), rdmsr(), cpuid(). */
#ifndef ENTRY_CHECK_H
#define ENTRY_CHECK_H

#include "virt/vmcb.h"
#include "common/insn.h"

/* Each returns a sentence that names the first rule which is broken, or NULL if an entry would
 * work. The first one checks the current VMCS: SDM 3C 27.2 and 27.3, and KVM's
 * nested_vmx_check_controls(), nested_vmx_check_host_state() and nested_vmx_check_guest_state().
 * The second one: APM2 15.5.1, and KVM's nested_vmcb_check_controls() and
 * nested_vmcb_check_save(). */
const char *vmx_broken_rule(void);
const char *svm_broken_rule(const struct vmcb *b);

/* The bits of vmcb.clean tell the CPU which fields have not changed since it has left the guest, so
 * that it need not read them again (APM2 15.15.3). The first function is called after each exit,
 * and notes what is in the VMCB. The second one is called before each entry, and names a field that
 * has changed although its bit is set, or returns NULL. QEMU reads all fields at each entry, so a
 * mistake there shows nowhere else. The third one forgets all, as the VMCBs are to be others. */
void svm_note_exit(const struct vmcb *b);
const char *svm_broken_clean_bit(const struct vmcb *b);
void svm_forget_exits(void);

/* The number of bits of a physical address. */
static inline unsigned entry_physbits(void) { return cpuid_or_zero(0x80000008, 0).eax & 0xff; }

#endif
