/* Faults of the hypervisor on request, to see that each is reported as it should be. */
#ifndef HV_PLATFORM_FAULT_H
#define HV_PLATFORM_FAULT_H

/* Does on this CPU what the word says: pf gp ud df stack mc assert (none of which returns), nmi, stray,
 * storm, hang (which take a while at most). -EINVAL for another word. */
int fault_inject(const char *what);

extern const char fault_words[]; /* "pf|gp|..." */

#endif
