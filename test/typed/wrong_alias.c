/* SPDX-License-Identifier: MIT */
/* expect: watchdog is not sendable: it must stay where it is */
#include <weft.h>
typedef weft_timer watchdog;
WEFT_CHAN_TYPE(watchdogs, watchdog);
