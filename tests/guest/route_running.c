/* vcpus: 2 */
/* time: 800 */
/* keys: route = running */
/* args: route=running */
#include "route.c"
