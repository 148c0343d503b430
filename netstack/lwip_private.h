/* lwIP's private headers. The stack needs them for what lwIP's public headers do not offer: the
 * lists of connections, their states, and the fields of a segment's header. No other file includes
 * them. So whoever moves to a new version of lwIP finds all code that depends on its inside: grep
 * for the users of this file.
 *
 * The known versions are lwIP 2.1 (Debian 12 has 2.1.3) and 2.2 (Debian 13 has 2.2.1). */
#ifndef NETSTACK_LWIP_PRIVATE_H
#define NETSTACK_LWIP_PRIVATE_H

#include "lwip/init.h"

#if LWIP_VERSION_MAJOR != 2 || (LWIP_VERSION_MINOR != 1 && LWIP_VERSION_MINOR != 2)
#error "netstack knows the private structures of lwIP 2.1 and 2.2 only: see netstack/lwip_private.h"
#endif

#include "lwip/priv/tcp_priv.h"

#endif
