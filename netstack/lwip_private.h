/* lwIP's private headers, for what its public ones do not offer: the lists of connections, their
 * states, and the fields of a segment's header. No other file includes them, so that a new version
 * of lwIP has to be compared with the sources in one place: grep for the users of this file.
 *
 * Known are lwIP 2.1 (Debian 12 has 2.1.3) and 2.2 (Debian 13 has 2.2.1). */
#ifndef NETSTACK_LWIP_PRIVATE_H
#define NETSTACK_LWIP_PRIVATE_H

#include "lwip/init.h"

#if LWIP_VERSION_MAJOR != 2 || (LWIP_VERSION_MINOR != 1 && LWIP_VERSION_MINOR != 2)
#error "netstack knows the private structures of lwIP 2.1 and 2.2 only: see netstack/lwip_private.h"
#endif

#include "lwip/priv/tcp_priv.h"

#endif
